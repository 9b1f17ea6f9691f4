"""The decoder for graphs with custom operators: paged KV caches, and for each row a list of the slots of its past.

Beams are never copied: a row that continues another one takes over its list. Rows are never moved: slots are recycled.
Caches never grow: the operating system does the paging. A decoder maps as much address space as its sequences could ever
need; memory is allocated when a slot is first written, and given back when more is held than is in use.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.search.constraints import Ids
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.runtime import Encoded, TopTokens
from dragoman.serving.engine.slots import KVSlots
from dragoman.serving.runtime.scored_tokens import can_score_tokens

__all__ = ["NativeDecoder", "has_input"]

Floats = npt.NDArray[np.float32]
Slots = npt.NDArray[np.int32]

_MOST_BOUND = 64
"""Bindings that are remembered; those of large candidate numbers hold megabytes."""

_MOST_BOUND_CANDIDATES = 64
"""Above, a binding is made for the step alone."""


class PagedMemory:
    """Places of `length` slots each: (layers, places, length, 2 · width). Memory is allocated when it is first written."""

    def __init__(self, layout: CacheLayout, places: int, length: int) -> None:
        self.length = length
        shape = (layout.layers, places, length, 2 * layout.heads * layout.head_dim)
        count = math.prod(shape)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _MAP_NORESERVE)
        self._mapped = mmap.mmap(-1, max(4 * count, 1), flags)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            self._mapped.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page would allocate the memory of many sequences at once
        self._slots: Floats = np.frombuffer(self._mapped, np.float32, count).reshape(shape)
        self._written = [0] * places  # slots of each place whose memory is taken
        self.held = 0

    @property
    def tensor(self) -> Floats:
        """The memory as the graph sees it: (layers, slots, 2 · width)."""
        layers, places, length, width = self._slots.shape
        return self._slots.reshape(layers, places * length, width)

    def write(self, layer: int, place: int, numbers: Floats) -> None:
        """The first slots of a place, (slots, 2 · width)."""
        self._slots[layer, place, : len(numbers)] = numbers

    def read(self, place: int, slots: int) -> Floats:
        """A copy of the first slots of a place, (layers, slots, 2 · width)."""
        return self._slots[:, place, :slots].copy()

    def note_written(self, place: int, slots: int) -> None:
        """So many slots of the place have been written, here or by the graph."""
        if slots > self._written[place]:
            self.held += slots - self._written[place]
            self._written[place] = slots

    def release(self, place: int) -> None:
        """Give the memory of a place back; its contents are lost."""
        if not self._written[place]:
            return
        self.held -= self._written[place]
        self._written[place] = 0
        place_bytes, page = self._slots[0, place].nbytes, mmap.PAGESIZE
        for layer in range(len(self._slots)):
            start = (layer * self._slots.shape[1] + place) * place_bytes
            first, last = -(-start // page) * page, (start + place_bytes) // page * page
            if first < last:
                self._mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


_MAP_NORESERVE = 0x4000  # Python names it from 3.11 on


def has_input(session: Any, name: str) -> bool:  # noqa: ANN401
    """Whether a graph has this input; older graphs, and those of other models, may lack it."""
    return any(given.name == name for given in session.get_inputs())


class _Bound:
    """A binding of inputs and outputs, made once for a number of sequences and of candidates."""

    def __init__(
        self,
        decoder: NativeDecoder,
        session: Any,  # noqa: ANN401 - onnxruntime has no types
        candidates: int,
        scored: int | None,
    ) -> None:
        """`scored` tokens of each row; None where the graph does not take them."""
        sequences = decoder.sequences
        rows = sequences * decoder.width
        self.binding = session.io_binding()
        self.candidates = np.array([candidates], np.int64)
        shape = (rows, candidates + (scored or 0))
        self.best = TopTokens(np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        # A greedy step's best tokens are the next one's input: they lie in the same memory.
        self.tokens = self.best.tokens.reshape(-1) if shape[1] == 1 else np.zeros(rows, np.int64)
        self.positions = np.zeros(rows, np.int32)
        self._bind_input("tokens", self.tokens)
        self._bind_input("positions", self.positions)
        self._bind_input("slots", decoder.slot_table[:rows])
        self._bind_input("self_cache", decoder.own.tensor)
        self._bind_input("source_starts", decoder.starts[:sequences])
        self._bind_input("source_lengths", decoder.lengths[:sequences])
        self._bind_input("cross_cache", decoder.cross.tensor)
        self._bind_input("candidates", self.candidates)
        if decoder.takes_shortlists:
            self._bind_input("shortlists", decoder.shortlists[:sequences])
        if scored is not None:
            self.scored_tokens = np.zeros((rows, scored), np.int64)
            self._bind_input("scored_tokens", self.scored_tokens)
        for name, array in (("tokens", self.best.tokens), ("log_probs", self.best.log_probs), ("logits", self.best.logits)):
            self.binding.bind_output(f"best_{name}", "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    # The pointers stay valid as long as the arrays do: this object and the decoder hold them.

    def _bind_input(self, name: str, array: npt.NDArray[Any]) -> None:
        self.binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


class NativeDecoder:
    """Binds its buffers once per number of sequences; a greedy step writes one small array."""

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - onnxruntime has no types
        layout: CacheLayout,
        width: int,
        sequences: int,
        lengths: tuple[int, int],
    ) -> None:
        """For at most `sequences` of `lengths` source and target tokens."""
        source, target = lengths
        rows = sequences * width
        self.width, self.sequences = width, 0
        self._session = session
        self._can_score_tokens = can_score_tokens(session)
        self.takes_shortlists = has_input(session, "shortlists")
        self._bound: dict[tuple[int, int, int], _Bound] = {}  # by sequences, candidates and scored tokens
        self._last: _Bound | None = None  # of the last step
        self.own = PagedMemory(layout, rows, target)
        self.cross = PagedMemory(layout, sequences, source)
        self.slot_table: Slots = np.zeros((rows, target), np.int32)  # of each row, by position
        self.starts, self.lengths = np.zeros((2, sequences), np.int32)  # of each sequence's source
        self.shortlists = np.zeros(sequences, np.int32)  # that each sequence's tokens are chosen from
        self._first = np.zeros((rows, 1), np.int32)  # each row's own first slot
        self._first_of: Slots = np.arange(rows, dtype=np.int32)[:, None] * np.int32(target)  # of each row's place
        self._filled = np.zeros(sequences, np.int64)  # tokens that each row of a sequence holds
        self._column: Slots = np.arange(target, dtype=np.int32)
        self._places: list[int] = []  # of each sequence
        self._free = list(range(sequences - 1, -1, -1))

    @property
    def held_slots(self) -> KVSlots:
        return KVSlots(self.own.held, self.cross.held)

    def reserve(self, target_tokens: int) -> None:
        """Nothing to do: memory is allocated when it is written."""

    def release(self, target_tokens: int) -> None:  # noqa: ARG002
        for place in self._free:
            self.cross.release(place)
            for row in range(place * self.width, (place + 1) * self.width):
                self.own.release(row)

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        self._catch_up()
        self._last = None
        lengths, ends = encoded.lengths.tolist(), encoded.lengths.cumsum().tolist()
        for index, reserved in zip(indices, target_tokens, strict=True):
            length, end = lengths[index], ends[index]
            place = self._settle(self.sequences, length)
            self.shortlists[self.sequences] = 0 if encoded.shortlists is None else encoded.shortlists[index]
            self.sequences += 1
            for layer, numbers in enumerate(encoded.cross):
                self.cross.write(layer, place, numbers[end - length : end])
            self.cross.note_written(place, length)
            for row in range(place * self.width, (place + 1) * self.width):
                self.own.note_written(row, reserved)  # it will be

    def encoded(self, sequence: int) -> Encoded | None:
        length = int(self.lengths[sequence])
        return Encoded(list(self.cross.read(self._places[sequence], length)), np.array([length], np.int32))

    def leave(self, sequence: int) -> None:
        self._catch_up()
        self._last = None
        last, place = self.sequences - 1, self._places[sequence]
        self._free.append(place)
        for row in range(place * self.width, (place + 1) * self.width):
            self.own.note_written(row, int(self._filled[sequence]))
        if sequence != last:
            here, there = self._rows(sequence), self._rows(last)
            self.slot_table[here], self._first[here] = self.slot_table[there], self._first[there]
            for numbers in (self.starts, self.lengths, self.shortlists, self._filled):
                numbers[sequence] = numbers[last]
            self._places[sequence] = self._places[last]
        self._places.pop()
        self.sequences = last

    def step(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int) -> TopTokens:
        return self._step(self._bound_for(candidates, 0), tokens, positions, parents)

    def step_scoring(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int, scored_tokens: Ids) -> TopTokens:
        bound = self._bound_for(candidates, scored_tokens.shape[-1])
        bound.scored_tokens[:] = scored_tokens.reshape(bound.scored_tokens.shape)
        return self._step(bound, tokens, positions, parents)

    def _step(self, bound: _Bound, tokens: Ids, positions: Ids, parents: Ids) -> TopTokens:
        self._last = bound
        bound.tokens[:] = tokens.ravel()
        if self.width == 1:
            bound.positions[:] = positions
        else:
            bound.positions.reshape(-1, self.width)[:] = positions[:, None]
            self._follow(parents, positions)
        np.add(positions, 1, out=self._filled[: self.sequences])
        self._session.run_with_iobinding(bound.binding)
        return bound.best

    def step_on(self) -> TopTokens:
        bound = self._last
        if bound is None:
            raise RuntimeError("there was no step to go on from")
        if bound.best.tokens.shape[1] != 1:
            bound.tokens[:] = bound.best.tokens[:, 0]
        bound.positions += 1
        self._session.run_with_iobinding(bound.binding)
        return bound.best

    def _bound_for(self, candidates: int, scored: int) -> _Bound:
        bound = self._bound.get((self.sequences, candidates, scored))
        if bound is None:
            bound = _Bound(self, self._session, candidates, scored if self._can_score_tokens else None)
            if candidates + scored <= _MOST_BOUND_CANDIDATES:
                if len(self._bound) >= _MOST_BOUND:
                    self._bound.clear()
                self._bound[self.sequences, candidates, scored] = bound
        return bound

    def _follow(self, parents: Ids, positions: Ids) -> None:
        """Row r of sequence s continues its row parents[s, r]: it takes over that row's slots, and adds its own."""
        rows, longest = self.sequences * self.width, int(positions.max())
        parent_rows = (parents + np.arange(0, rows, self.width)[:, None]).ravel()
        taken = self.slot_table[parent_rows, :longest]
        if int(positions.min()) != longest:  # shorter ones add theirs earlier
            own = self._first[:rows] + self._column[:longest]
            taken = np.where(self._column[:longest] < positions.repeat(self.width)[:, None], taken, own)
        self.slot_table[:rows, :longest] = taken

    def _settle(self, sequence: int, source_tokens: int) -> int:
        """Give a sequence a free place; returns it."""
        place, rows = self._free.pop(), self._rows(sequence)
        self._places.append(place)
        self.starts[sequence], self.lengths[sequence] = place * self.cross.length, source_tokens
        self._filled[sequence] = 0
        first = self._first_of[place * self.width : (place + 1) * self.width]
        self._first[rows] = first
        np.add(first, self._column, out=self.slot_table[rows])
        return place

    def _rows(self, sequence: int) -> slice:
        return slice(sequence * self.width, (sequence + 1) * self.width)

    def _catch_up(self) -> None:
        """Steps of `step_on` are counted in the positions only."""
        if self._last is not None:
            self._filled[: self.sequences] = self._last.positions[:: self.width] + 1
