"""Where and how a model runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dragoman.bundle.manifest import Precision

__all__ = ["Device", "RuntimeSettings"]

Device = Literal["cpu", "cuda", "tensorrt"]


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How ONNX Runtime is set up. `threads` 0 takes the number that measured best (docs/serving.md).

    `engine_cache` is where TensorRT keeps the engines it has built, so that only the first start is slow.
    """

    device: Device = "cpu"
    threads: int = 0
    spinning: bool = False
    device_id: int = 0
    engine_cache: Path | None = None

    def thread_count(self, precision: Precision) -> int:
        """All cores that this process may use, in int8 all but one.

        Products of int8 are so short that waking another thread for them costs what it saves, and the core is better
        left to Triton and the callers.
        """
        cores = len(os.sched_getaffinity(0))
        return self.threads or (max(cores - 1, 1) if precision == "int8" else cores)
