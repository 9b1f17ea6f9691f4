"""The decoder for graphs that take the past and return the present: all caches stay on the device between steps.

All changes of the rows since the last step (sequences that joined, left or moved, beams that were reordered) reach the graph
in one `parents` input: row r continues row parents[r] of the past. The cross-attention caches have no such input; they are
rearranged on the device, and only after sequences joined or left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.search.constraints import Ids
from dragoman.serving.engine.kv_cache import EMPTY, CacheLayout, CacheShape, fitted
from dragoman.serving.engine.runtime import Encoded, TopTokens
from dragoman.serving.engine.slots import KVSlots
from dragoman.serving.runtime.portable.device import DeviceMemory, Tensors
from dragoman.serving.runtime.scored_tokens import can_score_tokens, with_scored

__all__ = ["PortableDecoder"]

_FRESH = -1
_BEST = ("best_tokens", "best_log_probs", "best_logits")
_SCORED = ("scored_log_probs", "scored_logits")


class PortableDecoder:
    """Groups of `width` rows; a step sends token ids, positions and parents to the device and fetches the best tokens."""

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - onnxruntime has no types
        layout: CacheLayout,
        width: int,
        device: DeviceMemory,
    ) -> None:
        self.width = width
        self._session, self._layout, self._device = session, layout, device
        self._binding = session.io_binding()
        self._can_score_tokens = can_score_tokens(session)
        self._arranger = device.arranger(session, 2 * layout.layers, layout.dtype)
        self._shape, self._target = EMPTY, 1  # the target tokens that every row has room for
        self._lengths: list[int] = []  # tokens of each sequence's source
        self._cross: Tensors = []  # (sequences and those that left, heads, source, head_dim)
        self._place: list[int] = []  # where in `_cross` each sequence is
        self._cross_bound = False
        self._past: Tensors = []  # (past rows, heads, target, head_dim)
        self._past_sequence: list[int] = []  # which sequence of the past each sequence is

    @property
    def held_slots(self) -> KVSlots:
        return self._shape.slots(self.width)

    def reserve(self, target_tokens: int) -> None:
        self._resize(self._fitted(self._shape, 0, 0, target_tokens))

    def release(self, target_tokens: int) -> None:
        self._resize(self._fitted(EMPTY, 0, 0, target_tokens))

    def _fitted(self, current: CacheShape, newcomers: int, source: int, target: int) -> CacheShape:
        self._target = target
        return fitted(current, len(self._lengths) + newcomers, max([source, *self._lengths]), target)

    def _resize(self, shape: CacheShape) -> None:
        """Copy the caches to a new shape, if it differs."""
        if shape == self._shape:
            return
        self._shape = shape
        if not self._lengths:  # what is held belongs to no sequence
            self._cross, self._past = [], []
            return
        self._settle()
        if self._past:
            rows, _, _, _ = self._past[0].shape()
            self._past = self._arranger.picked(self._past, np.arange(rows), shape.target)

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        source, target = int(encoded.lengths[list(indices)].max()), max(self._target, *target_tokens)
        self._resize(self._fitted(self._shape, len(indices), source, target))
        fresh = self._arranger.picked(self._device.hold(encoded.cross), indices, self._shape.source)
        if self._lengths:
            self._settle()
            fresh = self._arranger.joined(self._cross, fresh)
        self._cross, self._cross_bound = fresh, False
        self._lengths += encoded.lengths[list(indices)].tolist()
        self._place = list(range(len(self._lengths)))
        self._past_sequence += [_FRESH] * len(indices)

    def encoded(self, sequence: int) -> Encoded | None:  # noqa: ARG002
        return None

    def leave(self, sequence: int) -> None:
        for column in (self._lengths, self._place, self._past_sequence):
            column[sequence] = column[-1]
            column.pop()
        self._cross_bound = False

    def step(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int) -> TopTokens:
        scored_tokens = np.zeros((*tokens.shape, 1), np.int64)  # one per row, which is not used
        best = self._step(tokens, positions, parents, scored_tokens)
        best_tokens = TopTokens(*(part[:, :candidates] for part in best[:3]))
        self._last = best_tokens.tokens[:, :1], positions.copy(), parents, candidates
        return best_tokens

    def step_scoring(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int, scored_tokens: Ids) -> TopTokens:
        *best, log_probs, logits = self._step(tokens, positions, parents, np.maximum(scored_tokens, 0))
        return with_scored(TopTokens(*(part[:, :candidates] for part in best)), scored_tokens, log_probs, logits)

    def _step(
        self,
        tokens: Ids,
        positions: Ids,
        parents: Ids,
        scored_tokens: Ids,
    ) -> list[npt.NDArray[Any]]:
        binding, sequences = self._binding, len(self._lengths)
        if not self._past:
            self._past = self._device.hold([self._nothing()] * (2 * self._layout.layers))
        if not self._cross_bound:
            self._bind_cross()
        # A fresh row may name any past row: its position, 0, hides all of it.
        past = np.maximum(np.array(self._past_sequence, np.int64), 0)
        binding.bind_cpu_input("parents", (past[:, None] * self.width + parents).ravel())
        binding.bind_cpu_input("tokens", np.ascontiguousarray(tokens))
        binding.bind_cpu_input("positions", np.repeat(positions.astype(np.int32)[:, None], self.width, axis=1))
        for index, tensor in enumerate(self._past):
            binding.bind_ortvalue_input(f"self_{_name(index)}", tensor)
        binding.clear_binding_outputs()
        if self._can_score_tokens:
            binding.bind_cpu_input("scored_tokens", scored_tokens.reshape(sequences * self.width, -1))
        told = _BEST + (_SCORED if self._can_score_tokens else ())
        for name in told:
            binding.bind_output(name, "cpu", 0)
        for index in range(len(self._past)):
            binding.bind_output(f"present_self_{_name(index)}", self._device.kind, self._device.id)
        binding.synchronize_inputs()
        self._session.run_with_iobinding(binding)
        outputs = binding.get_outputs()
        self._past = outputs[len(told) :]
        self._past_sequence = list(range(sequences))
        return [output.numpy() for output in outputs[: len(told)]]

    def step_on(self) -> TopTokens:
        tokens, positions, parents, candidates = self._last
        return self.step(tokens, positions + 1, parents, candidates)

    def _settle(self) -> None:
        """Rearrange `_cross` for the current sequences, with the room that the shape requires."""
        self._cross = self._arranger.picked(self._cross, self._place, self._shape.source)
        self._place = list(range(len(self._lengths)))
        self._cross_bound = False

    def _bind_cross(self) -> None:
        self._settle()
        for index, tensor in enumerate(self._cross):
            self._binding.bind_ortvalue_input(f"cross_{_name(index)}", tensor)
        self._binding.bind_cpu_input("source_lengths", np.array(self._lengths, np.int32))
        self._cross_bound = True

    def _nothing(self) -> npt.NDArray[Any]:
        shape = (self.width, self._layout.heads, self._shape.target, self._layout.head_dim)
        return np.zeros(shape, self._layout.dtype)


def _name(index: int) -> str:
    return f"{('key', 'value')[index % 2]}_{index // 2}"
