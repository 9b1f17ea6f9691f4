"""The graphs with custom operators, run without optimisations: every step has its KV slots in a new array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from dragoman.bundle.manifest import Graph
from dragoman.export.verification.answers import IntArray
from dragoman.export.verification.decoding import TopTokens

__all__ = ["NativeStepper"]


class NativeStepper:
    """Two sessions and the KV slots of one batch."""

    def __init__(
        self, encoder: onnxruntime.InferenceSession, decoder: onnxruntime.InferenceSession, decoder_graph: Graph
    ) -> None:
        self._encoder, self._decoder = encoder, decoder
        layers, _, size = next(spec.shape for spec in decoder_graph.inputs if spec.name == "self_cache")
        self._takes_lists = any(spec.name == "shortlists" for spec in decoder_graph.inputs)
        self._shortlist = 0
        self._empty = np.zeros((int(layers), 0, int(size)), np.float32)
        self._own, self._cross = self._empty, self._empty  # (layers, slots, 2 · width)
        self._slots = np.zeros((0, 0), np.int32)  # (rows, positions)
        self._starts, self._lengths = np.zeros((2, 0), np.int32)

    @property
    def slots(self) -> int:
        """How many KV slots the targets so far take."""
        return self._own.shape[1]

    def start(self, sources: Sequence[Sequence[int]], shortlist: int = 0) -> None:
        self._shortlist = shortlist
        lengths = np.array([len(source) for source in sources], np.int32)
        self._starts, self._lengths = (lengths.cumsum() - lengths).astype(np.int32), lengths
        feed: dict[str, NDArray[np.generic]] = {
            "source_ids": np.concatenate([np.array(source, np.int64) for source in sources]),
            "source_positions": np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
            "source_starts": self._starts,
            "source_lengths": lengths,
        }
        self._cross = np.stack(self._encoder.run(None, feed))
        self._own, self._slots = self._empty, np.zeros((len(sources), 0), np.int32)

    def step(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray, candidates: int) -> TopTokens:
        rows, width = tokens.size, tokens.shape[1]
        # At the first step there is one past row a group; afterwards there is one for each of its beams.
        first = self._slots.shape[1] == 0
        past = np.repeat(groups, width) if first else (groups[:, None] * width + parents).reshape(-1)
        self._add_slots(past)
        self._starts, self._lengths = self._starts[groups], self._lengths[groups]
        feed: dict[str, NDArray[np.generic]] = (
            {} if not self._takes_lists else {"shortlists": np.full(len(groups), self._shortlist, np.int32)}
        )
        return self._run(
            {
                **feed,
                "tokens": tokens.astype(np.int64).reshape(-1),
                "positions": positions.astype(np.int32).repeat(width),
                "slots": self._slots,
                "self_cache": self._own,
                "source_starts": self._starts,
                "source_lengths": self._lengths,
                "cross_cache": self._cross,
                "candidates": np.array([candidates], np.int64),
                "scored_tokens": np.zeros((rows, 0), np.int64),
            }
        )

    def _add_slots(self, past: IntArray) -> None:
        """Another slot for each row, which goes on with row `past`; slots that no row looks at any more are left out."""
        used, places = np.unique(self._slots[past], return_inverse=True)
        layers, _, size = self._own.shape
        own = np.empty((layers, len(used) + len(past), size), np.float32)
        own[:, len(used) :] = 0.0
        for layer, slots in zip(self._own, own, strict=True):
            slots[: len(used)] = layer[used]
        new = np.arange(len(used), own.shape[1])
        self._slots = np.column_stack([places.reshape(len(past), -1), new]).astype(np.int32)
        self._own = own

    def _run(self, feed: dict[str, NDArray[np.generic]]) -> TopTokens:
        binding = self._decoder.io_binding()
        for name, array in feed.items():  # their own memory, because the step writes to the cache
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name in ("best_tokens", "best_log_probs", "best_logits"):
            binding.bind_output(name)
        self._decoder.run_with_iobinding(binding)
        return TopTokens(*binding.copy_outputs_to_cpu())
