"""On which device, and with how many threads, a model runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dragoman.bundle.manifest import Precision

__all__ = ["LARGE_WEIGHT_BYTES", "Device", "RuntimeSettings", "ThreadLayout"]

Device = Literal["cpu", "cuda", "tensorrt"]

_TOGETHER = {"int8": 16}
_TOGETHER_IN_FLOAT = _TOGETHER_IF_LARGE = 64
"""Rows up to which one call that two threads share was faster than two calls of half the rows. With few rows a
product takes as long as reading its weights does, and two calls read them twice; with many, searches run beside calls."""

_SMALL_BYTES = 8 << 20
"""Integer calls of a model whose large weights take no more are so short that nothing is gained by sharing one."""

LARGE_WEIGHT_BYTES = 64 << 20
"""Weights that no cache holds come from memory for every call."""

_MOST_CALLS = 4
"""Between calls there is Python, one thread at a time."""


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The settings of a runtime. `threads` 0 means the number that measured best (docs/serving.md)."""

    device: Device = "cpu"
    threads: int = 0
    spinning: bool = False
    device_id: int = 0
    cuda_graphs: bool = True
    """Whether TensorRT captures decoder steps; off only to measure their benefit."""
    kernels: Path | None = None
    """A private directory for kernels that TensorRT-RTX has compiled, which the next process reuses."""

    def thread_count(self, precision: Precision) -> int:
        """All cores that this process may use, in int8 all but one: the core is better left to Triton and the callers."""
        cores = len(os.sched_getaffinity(0))
        return self.threads or (max(cores - 1, 1) if precision == "int8" else cores)

    def thread_layout(self, precision: Precision, weight_bytes: int) -> ThreadLayout:
        """For the custom operators: calls side by side, and threads that help where there are fewer calls than threads.

        `weight_bytes`: of the large weights that a decoder step reads.
        """
        threads = self.thread_count(precision)
        calls = min(threads, _MOST_CALLS)
        return ThreadLayout(calls, threads // calls, _rows_together(precision, weight_bytes) if calls > 1 else 0)


@dataclass(frozen=True, slots=True)
class ThreadLayout:
    """How a number of threads is used: `calls_at_once`, each computed by `threads_a_call`; but up to `rows_together` rows
    are better in one call that all threads help with."""

    calls_at_once: int
    threads_a_call: int
    rows_together: int = 0


def _rows_together(precision: Precision, weight_bytes: int) -> int:
    if precision not in _TOGETHER:
        return _TOGETHER_IN_FLOAT
    if weight_bytes > LARGE_WEIGHT_BYTES:
        return _TOGETHER_IF_LARGE
    return _TOGETHER[precision] if weight_bytes > _SMALL_BYTES else 0
