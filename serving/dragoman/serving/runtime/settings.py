"""Where and how a model runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Device", "RuntimeSettings"]

Device = Literal["cpu", "cuda", "tensorrt"]


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How ONNX Runtime is set up. `threads` 0 takes all cores that this process may use.

    `engine_cache` is where TensorRT keeps the engines it has built, so that only the first start is slow.
    """

    device: Device = "cpu"
    threads: int = 0
    spinning: bool = False
    device_id: int = 0
    engine_cache: Path | None = None

    @property
    def thread_count(self) -> int:
        return self.threads or len(os.sched_getaffinity(0))
