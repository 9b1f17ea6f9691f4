"""A lane for graphs with operators of our own: caches of cells, and for each row a list of the cells that are its past.

Beams are never copied: a row that goes on from another takes over its list. Rows never move: who leaves gives a place back.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.cache import CacheLayout
from dragoman.serving.engine.runtime import Best, Encoded
from dragoman.serving.engine.shapes import EMPTY, LaneShape

__all__ = ["CellsLane"]

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int32]


class CellMemory:
    """Places of `length` cells each: (layers, places, length, 2 · width). Memory is taken when it is first used."""

    def __init__(self, layout: CacheLayout, places: int, length: int) -> None:
        self.places, self.length = places, length
        shape = (layout.layers, places, length, 2 * layout.heads * layout.head_dim)
        count = math.prod(shape)
        self._mapped = mmap.mmap(-1, max(4 * count, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._cells: Floats = np.frombuffer(self._mapped, np.float32, count).reshape(shape)

    @property
    def tensor(self) -> Floats:
        """As the graph sees it: (layers, cells, 2 · width)."""
        layers, places, length, width = self._cells.shape
        return self._cells.reshape(layers, places * length, width)

    def write(self, layer: int, place: int, numbers: Floats) -> None:
        """The first cells of a place, (cells, 2 · width)."""
        self._cells[layer, place, : len(numbers)] = numbers

    def moved_to(self, there: CellMemory, places: Sequence[int], used: int) -> CellMemory:
        """These places, in their order, become the first ones there; each layer's memory is given back when it has moved."""
        for layer, cells in enumerate(self._cells if places and used else ()):
            for number, place in enumerate(places):  # one by one: all at once would be in memory a third time
                there._cells[layer, number, :used] = cells[place, :used]
            self._give_back(layer)
        return there

    def _give_back(self, layer: int) -> None:
        size, page = self._cells[layer].nbytes, mmap.PAGESIZE
        first, last = -(-layer * size // page) * page, (layer + 1) * size // page * page
        if first < last:
            self._mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


class _Bound:
    """What ONNX Runtime is told once for a number of groups and of candidates: where its inputs and outputs lie."""

    def __init__(self, lane: CellsLane, session: Any, candidates: int) -> None:  # noqa: ANN401 - onnxruntime has no types
        groups = lane.groups
        rows = groups * lane.width
        self.binding = session.io_binding()
        self.candidates = np.array([candidates], np.int64)
        shape = (rows, candidates)
        self.best = Best(np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        # A greedy step's best tokens are the next one's input: they lie in the same memory.
        self.tokens = self.best.tokens.reshape(-1) if candidates == 1 else np.zeros(rows, np.int64)
        self.positions = np.zeros(rows, np.int32)
        self._bind_input("tokens", self.tokens)
        self._bind_input("positions", self.positions)
        self._bind_input("cells", lane.cells[:rows])
        self._bind_input("self_cache", lane.own.tensor)
        self._bind_input("source_starts", lane.starts[:groups])
        self._bind_input("source_lengths", lane.lengths[:groups])
        self._bind_input("cross_cache", lane.cross.tensor)
        self._bind_input("candidates", self.candidates)
        for name, array in (("tokens", self.best.tokens), ("log_probs", self.best.log_probs), ("logits", self.best.logits)):
            self.binding.bind_output(f"best_{name}", "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    # The pointers stay valid as long as the arrays do: ours live as long as we, the lane's until it is resized.

    def _bind_input(self, name: str, array: npt.NDArray[Any]) -> None:
        self.binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


class CellsLane:
    """Buffers are bound once for each number of groups, until a shape changes; a greedy step writes one small array."""

    def __init__(self, session: Any, layout: CacheLayout, width: int) -> None:  # noqa: ANN401 - onnxruntime has no types
        self.width, self.groups = width, 0
        self._session, self._layout = session, layout
        self._bound: dict[tuple[int, int], _Bound] = {}  # by groups and candidates
        self._last: _Bound | None = None  # of the last step
        self._lay_out(EMPTY)

    def _lay_out(self, shape: LaneShape) -> None:
        rows = shape.groups * self.width
        self.own = CellMemory(self._layout, rows, shape.target)
        self.cross = CellMemory(self._layout, shape.groups, shape.source)
        self.cells: Cells = np.zeros((rows, shape.target), np.int32)  # of each row, by position
        self.starts, self.lengths = np.zeros((2, shape.groups), np.int32)  # of each group's source
        self._first = np.zeros((rows, 1), np.int32)  # each row's own first cell
        self._first_of: Cells = np.arange(rows, dtype=np.int32)[:, None] * np.int32(shape.target)  # of each row's place
        self._filled = np.zeros(shape.groups, np.int64)  # tokens that each row of a group holds
        self._column: Cells = np.arange(shape.target, dtype=np.int32)
        self._places: list[int] = []  # of each group
        self._free = list(range(shape.groups - 1, -1, -1))

    def resize(self, shape: LaneShape) -> None:
        if shape.groups < self.groups:
            raise ValueError(f"{shape} has no room for {self.groups} groups")
        self._catch_up()
        self._bound.clear()
        own, cross, places, cells = self.own, self.cross, self._places, self.cells
        lengths, filled = (numbers[: self.groups].tolist() for numbers in (self.lengths, self._filled))
        self._lay_out(shape)
        longest = max(filled, default=0)
        own.moved_to(self.own, [place * self.width + beam for place in places for beam in range(self.width)], longest)
        cross.moved_to(self.cross, places, max(lengths, default=0))
        for group, place in enumerate(places):
            self._settle(group, lengths[group], filled[group])
            rows, used = self._rows(group), filled[group]
            # A cell is a position in the place of a row; the rows of a group lie side by side, before and after.
            row_places, positions = np.divmod(cells[rows, :used], max(own.length, 1))
            moved = (self._places[group] - place) * self.width
            self.cells[rows, :used] = (row_places + moved) * shape.target + positions
        if self._last is not None:  # what it said is still to be fed
            self._last = self._moved(self._last)

    def join(self, encoded: Encoded, indices: Sequence[int]) -> None:
        self._catch_up()
        self._last = None
        ends = encoded.lengths.cumsum()
        for index in indices:
            length, end = int(encoded.lengths[index]), int(ends[index])
            place = self._settle(self.groups, length, 0)
            self.groups += 1
            for layer, numbers in enumerate(encoded.cross):
                self.cross.write(layer, place, numbers[end - length : end])

    def leave(self, group: int) -> None:
        self._catch_up()
        self._last = None
        last = self.groups - 1
        self._free.append(self._places[group])
        if group != last:
            here, there = self._rows(group), self._rows(last)
            self.cells[here], self._first[here] = self.cells[there], self._first[there]
            for numbers in (self.starts, self.lengths, self._filled):
                numbers[group] = numbers[last]
            self._places[group] = self._places[last]
        self._places.pop()
        self.groups = last

    def step(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int) -> Best:
        bound = self._bound.get((self.groups, candidates))
        if bound is None:
            bound = self._bound[self.groups, candidates] = _Bound(self, self._session, candidates)
        self._last = bound
        bound.tokens[:] = tokens.ravel()
        if self.width == 1:
            bound.positions[:] = positions
        else:
            bound.positions.reshape(-1, self.width)[:] = positions[:, None]
            self._follow(parents, positions)
        np.add(positions, 1, out=self._filled[: self.groups])
        self._session.run_with_iobinding(bound.binding)
        return bound.best

    def step_on(self) -> Best:
        bound = self._last
        if bound is None:
            raise RuntimeError("there was no step to go on from")
        if bound.candidates[0] != 1:
            bound.tokens[:] = bound.best.tokens[:, 0]
        bound.positions += 1
        self._session.run_with_iobinding(bound.binding)
        return bound.best

    def _follow(self, parents: Ids, positions: Ids) -> None:
        """Row r of group g goes on from row parents[g, r]: it takes over that row's cells up to here, and adds its own."""
        rows, longest = self.groups * self.width, int(positions.max())
        parent_rows = (parents + np.arange(0, rows, self.width)[:, None]).ravel()
        taken = self.cells[parent_rows, :longest]
        if int(positions.min()) != longest:  # shorter ones add theirs earlier
            own = self._first[:rows] + self._column[:longest]
            taken = np.where(self._column[:longest] < positions.repeat(self.width)[:, None], taken, own)
        self.cells[:rows, :longest] = taken

    def _settle(self, group: int, source_tokens: int, filled: int) -> int:
        """Give a group a free place, which is returned."""
        place, rows = self._free.pop(), self._rows(group)
        self._places.append(place)
        self.starts[group], self.lengths[group], self._filled[group] = place * self.cross.length, source_tokens, filled
        first = self._first_of[place * self.width : (place + 1) * self.width]
        self._first[rows] = first
        np.add(first, self._column, out=self.cells[rows])
        return place

    def _rows(self, group: int) -> slice:
        return slice(group * self.width, (group + 1) * self.width)

    def _moved(self, last: _Bound) -> _Bound:
        there = _Bound(self, self._session, int(last.candidates[0]))
        there.tokens[:], there.positions[:], there.best.tokens[:] = last.tokens, last.positions, last.best.tokens
        return there

    def _catch_up(self) -> None:
        """Steps of `step_on` are told in the positions only."""
        if self._last is not None:
            self._filled[: self.groups] = self._last.positions[:: self.width] + 1
