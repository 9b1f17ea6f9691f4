"""A double that computes nothing and answers at once: what is left is the host's part of the work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.bundle.manifest import Manifest
from gpu_double.cuda import CudaDouble, Memory, view
from gpu_double.engines import ContextDouble, EngineDouble
from gpu_double.tensorrt import TensorRtDouble, importing_doubles


class IdleCuda(CudaDouble):
    """Answers at once and copies nothing."""

    def cudaMemcpyAsync(self, dst: int, src: int, count: int, kind: int, stream: int) -> tuple[int]:
        return (0,)

    def cudaMemcpy2DAsync(
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
    ) -> tuple[int]:
        return (0,)

    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: int) -> tuple[int]:
        return (0,)

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        error, address = super().cudaHostAlloc(size, flags)
        view(address, (size // 8,), np.int64)[:] = 7  # the same token forever; as a float, nearly 0
        return error, address

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        self.queue.clear()
        return (0,)


class IdleContext(ContextDouble):
    """Runs nothing."""

    def execute_async_v3(self, stream_handle: int) -> bool:
        self.engine.cuda.launches += 1
        return True


def idle_gpu(bundle: Path, manifest: Manifest) -> tuple[IdleCuda, Callable[[str], Any]]:
    """Such a GPU, and what a runtime imports it with. For a process that does nothing else."""
    cuda = IdleCuda()
    trt = TensorRtDouble(cuda)
    trt.know(bundle, manifest)
    EngineDouble.context_type = IdleContext
    Memory.poison = lambda *_: None  # type: ignore[method-assign]
    return cuda, importing_doubles(cuda, trt)
