"""A GPU for this runtime: memory, copies, and one stream that executes everything in order.

`cuda` and `driver` are the modules `cuda.bindings.runtime` and `.driver`; anything with their functions can replace them.
"""

# ruff: noqa: ANN401 - cuda.bindings has no types

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Container, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dragoman.errors import ServeError, ServerError
from dragoman.serving.runtime.tensorrt.diagnosis import diagnosis

__all__ = ["Buffer", "Gpu", "Pinned", "Rows"]

_LEAST_BYTES = 256
"""TensorRT wants no null pointers, and addresses in steps of 256."""


class Rows(NamedTuple):
    """Rows in the GPU's memory, which begin `pitch` bytes apart."""

    address: int
    pitch: int


class Gpu:
    """GPU `number`. A context manager: one thread at a time gives it work, and CUDA calls then apply to this GPU."""

    def __init__(self, cuda: Any, driver: Any, number: int) -> None:
        self._cuda, self._driver, self.number = cuda, driver, number
        self._lock = threading.RLock()
        self.synchronised = 0  # how often the stream has been synchronised
        self.bytes_up = self.bytes_down = 0
        self.is_lost = False  # after an error CUDA answers every call of this process with it
        error, count = _first_two(cuda.cudaGetDeviceCount())
        if int(error) or not count:
            raise ServeError(
                f"device='tensorrt' needs an NVIDIA GPU and its driver, and CUDA finds none here ({self._told(error)}): "
                f"{diagnosis(cuda, error)}. Or serve with --device cpu; see docs/gpu.md"
            )
        if number >= count:
            raise ServeError(f"--gpu {number} is not here: this machine has {count}, numbered from 0")
        self._count = int(count)
        with self:
            error, self.stream = _first_two(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
            if int(error):
                raise ServeError(f"CUDA can't use GPU {number} ({self._told(error)}): {diagnosis(cuda, error)}")
            self._keep_freed_memory()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._done(self._cuda.cudaSetDevice(self.number))  # CUDA remembers it for each thread
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    @property
    def compute_capability(self) -> str:
        return self._compute_capability(self.number)

    def others(self, compute_capabilities: Container[str]) -> list[int]:
        """The machine's other GPUs that have one of these."""
        numbers = (number for number in range(self._count) if number != self.number)
        return [number for number in numbers if self._compute_capability(number) in compute_capabilities]

    def _compute_capability(self, number: int) -> str:
        attributes = self._cuda.cudaDeviceAttr
        major, minor = (
            self._done(self._cuda.cudaDeviceGetAttribute(attribute, number))
            for attribute in (attributes.cudaDevAttrComputeCapabilityMajor, attributes.cudaDevAttrComputeCapabilityMinor)
        )
        return f"{major}.{minor}"

    def free_bytes(self) -> int:
        """The memory that is not allocated."""
        error, free, _total = self._cuda.cudaMemGetInfo()
        self._done((error,))
        return int(free)

    def allocate(self, count: int) -> Buffer:
        """Allocate uninitialised memory."""
        error, address = _first_two(self._cuda.cudaMallocAsync(max(count, _LEAST_BYTES), self.stream))
        if int(error):
            raise ServerError(f"GPU {self.number} has no {count:,} bytes left: {self._told(error)}")
        return Buffer(self, int(address), max(count, _LEAST_BYTES))

    def pinned(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Pinned:
        """Host memory that the GPU reads and writes directly."""
        kind = np.dtype(dtype)
        count = max(int(np.prod(shape)) * kind.itemsize, 1)
        address = int(self._done(self._cuda.cudaHostAlloc(count, self._cuda.cudaHostAllocDefault)))
        raw = (ctypes.c_byte * count).from_address(address)
        pinned = Pinned(np.frombuffer(memoryview(raw), kind, int(np.prod(shape))).reshape(shape), address)
        weakref.finalize(pinned, self._release_pinned, address).atexit = False
        return pinned

    def upload(self, target: int, source: int, count: int) -> None:
        self.bytes_up += count
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._done(self._cuda.cudaMemcpyAsync(target, source, count, kind, self.stream))

    def download_rows(self, target: int, source: Rows, width: int, rows: int) -> None:
        """The first `width` bytes of each row, side by side in the host's memory."""
        self.bytes_down += width * rows
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._done(self._cuda.cudaMemcpy2DAsync(target, width, source.address, source.pitch, width, rows, kind, self.stream))

    def copy_rows(self, target: Rows, source: Rows, width: int, rows: int) -> None:
        """Within the GPU: the first `width` bytes of each row."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        copy = self._cuda.cudaMemcpy2DAsync
        self._done(copy(target.address, target.pitch, source.address, source.pitch, width, rows, kind, self.stream))

    def zero(self, buffer: Buffer) -> None:
        self._done(self._cuda.cudaMemsetAsync(buffer.address, 0, buffer.bytes, self.stream))

    def synchronise(self) -> None:
        """Wait until all work of the stream is done."""
        self._done(self._cuda.cudaStreamSynchronize(self.stream))
        self.synchronised += 1

    def _release(self, address: int) -> None:
        with self:
            self._done(self._cuda.cudaFreeAsync(address, self.stream))

    def _release_pinned(self, address: int) -> None:
        with self:
            self.synchronise()  # a copy may be under way
            self._done(self._cuda.cudaFreeHost(address))

    def _keep_freed_memory(self) -> None:
        """Freed memory stays allocated for the next request: the memory contract bounds it."""
        supported = self._cuda.cudaDeviceAttr.cudaDevAttrMemoryPoolsSupported
        if not self._done(self._cuda.cudaDeviceGetAttribute(supported, self.number)):
            raise ServeError(f"GPU {self.number} has no memory pools, which device='tensorrt' needs; use --device cuda")
        pool = self._done(self._cuda.cudaDeviceGetDefaultMemPool(self.number))
        everything = self._driver.cuuint64_t(2**64 - 1)
        threshold = self._cuda.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
        self._done(self._cuda.cudaMemPoolSetAttribute(pool, threshold, everything))

    def _done(self, result: Any) -> Any:
        """The value of a CUDA call; ServerError when it failed, and then no later call can be trusted."""
        error, value = _first_two(result)
        if int(error):
            self.is_lost = True
            raise ServerError(f"CUDA on GPU {self.number}: {self._told(error)}")
        return value

    def _told(self, error: Any) -> str:
        _, text = _first_two(self._cuda.cudaGetErrorString(error))
        return text.decode() if isinstance(text, bytes) else str(error)


class Buffer:
    """GPU memory; freed, in the order of the stream, when the last reference to it is gone."""

    __slots__ = ("__weakref__", "address", "bytes")

    def __init__(self, device: Gpu, address: int, count: int) -> None:
        self.address, self.bytes = address, count
        weakref.finalize(self, device._release, address).atexit = False


class Pinned:
    """An array in page-locked memory of the host."""

    __slots__ = ("__weakref__", "address", "array")

    def __init__(self, array: npt.NDArray[Any], address: int) -> None:
        self.array, self.address = array, address


def _first_two(result: Any) -> tuple[Any, Any]:
    """Every call of cuda.bindings returns a tuple: the error, and a value where there is one."""
    return result[0], result[1] if len(result) > 1 else None
