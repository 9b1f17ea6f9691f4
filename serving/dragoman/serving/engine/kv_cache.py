"""A padded KV cache in numpy: packed, so that a graph gets contiguous leading slices without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.runtime import Encoded
from dragoman.serving.engine.slots import KVSlots, bucket, power_of_two

__all__ = ["EMPTY", "CacheLayout", "CacheShape", "KVCache", "fitted", "grown"]

Tensor = npt.NDArray[np.floating]  # type: ignore[type-arg]


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The sizes that a cache depends on."""

    layers: int
    heads: int
    head_dim: int
    dtype: str = "float32"

    @property
    def slot_bytes(self) -> int:
        """Bytes of one token position: key and value of every layer."""
        return 2 * self.layers * self.heads * self.head_dim * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Room for `sequences` sources of `source` tokens and, in each of their rows, `target` tokens."""

    sequences: int
    source: int
    target: int

    def slots(self, width: int) -> KVSlots:
        return KVSlots(self.sequences * width * self.target, self.sequences * self.source)


EMPTY = CacheShape(0, 0, 0)


def fitted(current: CacheShape, sequences: int, source: int, target: int) -> CacheShape:
    """The shape for what is needed, the current one where it still does: for caches that a step reads whole."""
    if not sequences:
        return EMPTY
    return CacheShape(
        _kept(current.sequences, power_of_two(sequences)),
        _kept(current.source, bucket(source)),
        _kept(current.target, bucket(target)),
    )


def grown(current: CacheShape, sequences: int, source: int, target: int) -> CacheShape:
    """A shape that holds what is needed and what there was room for before: where room to spare costs a step nothing."""
    needed = fitted(EMPTY, sequences, source, target)
    return CacheShape(
        max(current.sequences, needed.sequences), max(current.source, needed.source), max(current.target, needed.target)
    )


def _kept(current: int, needed: int) -> int:
    return current if needed <= current <= 4 * needed else needed


class KVCache:
    """Sequences of `width` rows: `own` (rows, heads, target, head_dim), `cross` (sequences, heads, source, head_dim).

    One tensor for the key and one for the value of each layer. `shape` is the room there is, `sequences` what is in use.
    """

    def __init__(self, layout: CacheLayout, width: int) -> None:
        self.width, self.sequences, self.shape = width, 0, EMPTY
        self._layout = layout
        self.own = [self._zeros(0, 0) for _ in range(2 * layout.layers)]
        self.cross = [self._zeros(0, 0) for _ in range(2 * layout.layers)]
        self.lengths = np.zeros(0, np.int32)  # (sequences,) tokens of the source
        self.filled = np.zeros(0, np.int64)  # (sequences,) tokens that each row of the sequence holds
        self._order = list(range(width))
        self.places: list[list[int]] = []  # where among the sequence's rows each row lies; lists, because they are few
        self._lie = np.zeros((0, width), np.int64)  # (sequences, width) the same, counted from the first row of all

    def make_room(self, newcomers: int, source: int, target: int) -> bool:
        """Room for more sequences with so long a source, and for `target` tokens in every row; True if the shape changed."""
        used = int(self.lengths[: self.sequences].max(initial=0))
        shape = grown(self.shape, self.sequences + newcomers, max(source, used, 1), max(target, 1))
        return self.resize(shape)

    def release(self, target: int) -> bool:
        """As small as it can be with room for `target` tokens in every row; True if the shape changed."""
        source = int(self.lengths[: self.sequences].max(initial=0))
        return self.resize(fitted(EMPTY, self.sequences, source, target))

    @property
    def rows(self) -> int:
        return self.sequences * self.width

    def resize(self, shape: CacheShape) -> bool:
        """Lay everything out anew, one tensor after the other, so that only one is in memory twice; False if it fits."""
        if shape == self.shape:
            return False
        if shape.sequences < self.sequences:
            raise ValueError(f"{shape} has no room for {self.sequences} sequences")
        if (shape.sequences, shape.target) != (self.shape.sequences, self.shape.target):
            used = int(self.filled[: self.sequences].max(initial=0))
            for index, old in enumerate(self.own):
                self.own[index] = self._zeros(shape.sequences * self.width, shape.target)
                self.own[index][: self.rows, :, :used] = old[: self.rows, :, :used]
        if (shape.sequences, shape.source) != (self.shape.sequences, self.shape.source):
            used = int(self.lengths[: self.sequences].max(initial=0))
            for index, old in enumerate(self.cross):
                self.cross[index] = self._zeros(shape.sequences, shape.source)
                self.cross[index][: self.sequences, :, :used] = old[: self.sequences, :, :used]
        self.lengths = _resized(self.lengths, shape.sequences, self.sequences)
        self.filled = _resized(self.filled, shape.sequences, self.sequences)
        self._lie = _resized(self._lie, shape.sequences, self.sequences)
        self.shape = shape
        return True

    def join(self, encoded: Encoded, indices: Sequence[int]) -> None:
        """Append a sequence for each of these sources. What a row finds in `own` is hidden by its position, 0."""
        first, last = self.sequences, self.sequences + len(indices)
        chosen = _run(indices)
        length = int(encoded.lengths[chosen].max())
        for kept, new in zip(self.cross, encoded.cross, strict=True):
            kept[first:last, :, :length] = new[chosen, :, :length]
        self.lengths[first:last] = encoded.lengths[chosen]
        self.filled[first:last] = 0
        self.places += [self._order] * len(indices)
        self._lie[first:last] = np.arange(first * self.width, last * self.width).reshape(-1, self.width)
        self.sequences = last

    def leave(self, index: int) -> None:
        """Drop a sequence; the last one moves into its place."""
        last, width = self.sequences - 1, self.width
        if index != last:
            length, used = self.lengths[last], self.filled[last]
            for kept in self.own:
                kept[index * width : (index + 1) * width, :, :used] = kept[last * width : (last + 1) * width, :, :used]
            for kept in self.cross:
                kept[index, :, :length] = kept[last, :, :length]
            self.lengths[index], self.filled[index], self.places[index] = length, used, self.places[last]
            self._lie[index] = self._lie[last] - (last - index) * width
        self.places.pop()
        self.sequences = last

    def follow(self, parents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(rows,): where each row lies now that row r of sequence s continues its row parents[s, r].

        The first to continue a parent takes its place; only the others are copied, into the places of rows that nobody
        continues, and only the positions in use. Ordering the rows instead would move nearly all of them at every step.
        """
        for index, continued in enumerate(parents.tolist()):
            if continued == self._order:
                continue
            places = [self.places[index][parent] for parent in continued]
            if free := [place for place in self._order if place not in places]:
                self._copy_others(index, places, free)
            self.places[index] = places
            self._lie[index] = [index * self.width + place for place in places]
        return self._lie[: self.sequences].reshape(-1)

    def _copy_others(self, index: int, places: list[int], free: list[int]) -> None:
        """Give each row whose place an earlier one has taken a free place with a copy; changes `places`."""
        base, used = index * self.width, self.filled[index]
        taken: set[int] = set()
        for row, place in enumerate(places):
            if place in taken:
                to = places[row] = free.pop()
                for kept in self.own:
                    kept[base + to, :, :used] = kept[base + place, :, :used]
            taken.add(place)

    def _zeros(self, count: int, length: int) -> Tensor:
        # Not whatever memory holds: a masked position counts 0 times its value, and 0 times NaN is NaN.
        return np.zeros((count, self._layout.heads, length, self._layout.head_dim), self._layout.dtype)


_Number = TypeVar("_Number", np.int32, np.int64)


def _resized(numbers: npt.NDArray[_Number], size: int, used: int) -> npt.NDArray[_Number]:
    resized = np.zeros((size, *numbers.shape[1:]), numbers.dtype)
    resized[:used] = numbers[:used]
    return resized


def _run(indices: Sequence[int]) -> slice | list[int]:
    """Neighbours as a slice, so that they are copied from a view."""
    first, last = indices[0], indices[-1]
    return slice(first, last + 1) if list(indices) == list(range(first, last + 1)) else list(indices)
