"""The calls of `cuda.bindings.runtime` that the runtime makes, with memory of the host as memory of a GPU."""

from __future__ import annotations

import ctypes
import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Where = Literal["device", "host"]
POISON = 0xFF  # NaN in float16 and float32, -1 in integers
_STREAM = 7  # of the first GPU


class Fault(AssertionError):
    """Something a real GPU would have answered with garbage, a crash or silence."""


@dataclass
class Memory:
    """One allocation."""

    start: int
    size: int
    where: Where
    array: np.ndarray
    freed: bool = False  # at this point of the stream

    def poison(self, at: int = 0, size: int | None = None) -> None:
        ctypes.memset(self.start + at, POISON, self.size - at if size is None else size)


class CudaDouble:
    """Has the functions of the module; `driver` has those of `cuda.bindings.driver`."""

    cudaHostAllocDefault, cudaStreamNonBlocking = 0, 1

    class cudaError_t(enum.IntEnum):
        cudaSuccess = 0
        cudaErrorMemoryAllocation = 2
        cudaErrorInsufficientDriver = 35
        cudaErrorDevicesUnavailable = 46
        cudaErrorNoDevice = 100
        cudaErrorInvalidDevice = 101
        cudaErrorSystemNotReady = 802
        cudaErrorSystemDriverMismatch = 803
        cudaErrorCompatNotSupportedOnDevice = 804

    class cudaMemcpyKind(enum.IntEnum):
        cudaMemcpyHostToHost = 0
        cudaMemcpyHostToDevice = 1
        cudaMemcpyDeviceToHost = 2
        cudaMemcpyDeviceToDevice = 3

    class cudaDeviceAttr(enum.IntEnum):
        cudaDevAttrComputeCapabilityMajor = 75
        cudaDevAttrComputeCapabilityMinor = 76
        cudaDevAttrMemoryPoolsSupported = 115

    class cudaMemPoolAttr(enum.IntEnum):
        cudaMemPoolAttrReleaseThreshold = 4

    def __init__(self, *capabilities: tuple[int, int], total_bytes: int = 8 << 30) -> None:
        """A GPU for each of the compute capabilities; one of 8.6 if none is given."""
        self.capabilities, self.total_bytes = capabilities or ((8, 6),), total_bytes
        self.unusable = self.busy = 0  # what CUDA answers when it is asked for GPUs, or for a stream on one
        self.driver_version, self.runtime_version = 13000, 13050
        self.memories: list[Memory] = []
        self.queue: list[Callable[[], None]] = []
        self.copied: list[tuple[str, int]] = []  # direction and bytes of every copy
        self.launches = 0
        self.peak_bytes = 0
        self._current = threading.local()
        self.driver = self

    # What the double's own parts ask.

    @property
    def device(self) -> int:
        """The GPU that this thread has named."""
        if not hasattr(self._current, "device"):
            raise Fault("this thread has not said which GPU it means")
        return int(self._current.device)

    def enqueue(self, work: Callable[[], None], stream: int) -> None:
        self.check_stream(stream)
        self.queue.append(work)

    def check_stream(self, stream: int) -> None:
        """Fault unless it is the stream of the GPU that this thread has named."""
        if stream != _STREAM + self.device:
            raise Fault(f"stream {stream} does not belong to GPU {self.device}")

    def memory(self, address: int, size: int, where: Where) -> Memory:
        """The allocation that all these bytes lie in; Fault when there is none at this point of the stream."""
        for memory in self.memories:
            if memory.start <= address < memory.start + memory.size:
                if memory.where != where:
                    raise Fault(f"{memory.where} memory where {where} memory belongs")
                if memory.freed:
                    raise Fault(f"{address:#x} was freed")
                if address + size > memory.start + memory.size:
                    raise Fault(f"{size} bytes do not fit into the {memory.start + memory.size - address} that are left")
                return memory
        raise Fault(f"{address:#x} is no allocation")

    @property
    def used_bytes(self) -> int:
        return sum(memory.size for memory in self.memories if memory.where == "device")

    # The module's functions, with its parameters' names.

    def cuuint64_t(self, init_value: int) -> int:
        return init_value

    def cudaGetErrorString(self, error: int) -> tuple[int, bytes]:
        return 0, self.cudaError_t(error).name.encode()

    def cudaGetDeviceCount(self) -> tuple[int, int]:
        return (self.unusable, None) if self.unusable else (0, len(self.capabilities))

    def cudaDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.driver_version

    def cudaRuntimeGetVersion(self) -> tuple[int, int]:
        return 0, self.runtime_version

    def cudaSetDevice(self, device: int) -> tuple[int]:
        if device >= len(self.capabilities):
            return (self.cudaError_t.cudaErrorInvalidDevice,)
        self._current.device = device
        return (0,)

    def cudaDeviceGetAttribute(self, attr: int, device: int) -> tuple[int, int]:
        values = {75: self.capabilities[device][0], 76: self.capabilities[device][1], 115: 1}
        return 0, values[int(attr)]

    def cudaDeviceGetDefaultMemPool(self, device: int) -> tuple[int, str]:
        return 0, f"pool {device}"

    def cudaMemPoolSetAttribute(self, memPool: str, attr: int, value: int) -> tuple[int]:
        assert memPool.startswith("pool")
        assert value > 0
        return (0,)

    def cudaMemGetInfo(self) -> tuple[int, int, int]:
        assert self.device >= 0
        return 0, self.total_bytes - self.used_bytes, self.total_bytes

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[int, int]:
        return (self.busy, None) if self.busy else (0, _STREAM + self.device)

    def cudaMallocAsync(self, size: int, hStream: int) -> tuple[int, int]:
        self.check_stream(hStream)
        if self.used_bytes + size > self.total_bytes:
            return self.cudaError_t.cudaErrorMemoryAllocation, 0
        address = self._allocate(size, "device")
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return 0, address

    def cudaFreeAsync(self, devPtr: int, hStream: int) -> tuple[int]:
        memory = self.memory(devPtr, 1, "device")
        if memory.start != devPtr:
            raise Fault("freed by an address that is not its own")
        memory.freed = True

        def work() -> None:
            memory.poison()
            self.memories.remove(memory)

        self.enqueue(work, hStream)
        return (0,)

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        assert self.device >= 0
        return 0, self._allocate(size, "host")

    def cudaFreeHost(self, ptr: int) -> tuple[int]:
        if self.queue:
            raise Fault("host memory was freed while a copy of it may be under way")
        memory = self.memory(ptr, 1, "host")
        memory.poison()
        self.memories.remove(memory)
        return (0,)

    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: int) -> tuple[int]:
        self.memory(devPtr, count, "device")
        self.enqueue(lambda: ctypes.memset(devPtr, value, count) and None, stream)
        return (0,)

    def cudaMemcpyAsync(self, dst: int, src: int, count: int, kind: int, stream: int) -> tuple[int]:
        return self.cudaMemcpy2DAsync(dst, count, src, count, count, 1, kind, stream)

    def cudaMemcpy2DAsync(
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
    ) -> tuple[int]:
        if width > dpitch or width > spitch:
            raise Fault(f"rows of {width} bytes overlap at a pitch of {dpitch} or {spitch}")
        to, of = {1: ("device", "host"), 2: ("host", "device"), 3: ("device", "device")}[int(kind)]
        target, source = (
            self.memory(dst, dpitch * (height - 1) + width, to),
            self.memory(src, spitch * (height - 1) + width, of),
        )
        if target is source and max(dst, src) < min(dst + dpitch * height, src + spitch * height):
            raise Fault("a copy onto itself")
        rows = [(dst + row * dpitch, src + row * spitch) for row in range(height)]
        sent = [ctypes.string_at(at, width) for _, at in rows] if of == "host" else None
        if to == "host":  # whoever looks before the stream was waited for sees this
            for at, _ in rows:
                ctypes.memset(at, POISON, width)

        def work() -> None:
            if sent is not None and sent != [ctypes.string_at(at, width) for _, at in rows]:
                raise Fault("host memory was changed while a copy of it was under way")
            for at, found in rows:
                ctypes.memmove(at, found, width)

        self.enqueue(work, stream)
        self.copied.append(({1: "up", 2: "down", 3: "within"}[int(kind)], width * height))
        return (0,)

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        self.check_stream(stream)
        queue, self.queue = self.queue, []
        for work in queue:
            work()
        return (0,)

    def _allocate(self, size: int, where: Where) -> int:
        array = np.empty(size + 512, np.uint8)
        memory = Memory((array.ctypes.data + 255) & ~255, size, where, array)
        memory.poison()
        self.memories.append(memory)
        return memory.start


def view(address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The tensor that lies there."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)
