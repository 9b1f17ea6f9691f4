"""The few bytes that a call sends to the GPU: collected in page-locked memory, sent in one copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.runtime.tensorrt.device import Gpu

__all__ = ["Staging"]

_STEP = 256


class Staging:
    """Arrays by name, each at a fixed address of the GPU."""

    def __init__(self, device: Gpu, layout: Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]) -> None:
        self._device = device
        starts, end = {}, 0
        for name, (shape, dtype) in layout.items():
            starts[name] = end
            end += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // _STEP) * _STEP
        self._bytes = end
        self._host, self._buffer = device.pinned((end,), np.uint8), device.allocate(end)
        self._host.array[:] = 0
        self._views = {
            name: self._host.array[start : start + int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
            for (name, (shape, dtype)), start in zip(layout.items(), starts.values(), strict=True)
        }
        self.addresses = {name: self._buffer.address + start for name, start in starts.items()}
        self._sent_at = -1

    def writable(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays, once the last copy of them has happened."""
        if self._sent_at == self._device.synchronised:
            self._device.synchronise()
        return self._views

    def send(self) -> None:
        self._device.upload(self._buffer.address, self._host.address, self._bytes)
        self._sent_at = self._device.synchronised
