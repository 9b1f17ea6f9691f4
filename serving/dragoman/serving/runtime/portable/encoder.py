"""Runs an encoder: sources padded to the longest, their keys and values left where the decoder reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.runtime import Encoded
from dragoman.serving.runtime.portable.device import DeviceMemory

__all__ = ["DeviceEncoder", "padded"]


def padded(sources: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Token ids (batch, source) and lengths (batch,)."""
    lengths = np.array([len(source) for source in sources], np.int32)
    ids = np.zeros((len(sources), int(lengths.max())), np.int64)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = source
    return ids, lengths


class DeviceEncoder:
    """An encoder for decoders whose caches are on a device: its results never leave it."""

    def __init__(self, session: Any, outputs: Sequence[str], device: DeviceMemory) -> None:  # noqa: ANN401
        self._session, self._outputs, self._device = session, list(outputs), device

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        ids, lengths = padded(sources)
        binding = self._session.io_binding()
        binding.bind_cpu_input("source_ids", ids)
        binding.bind_cpu_input("source_lengths", lengths)
        for name in self._outputs:
            binding.bind_output(name, self._device.kind, self._device.id)
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        return Encoded(binding.get_outputs(), lengths)
