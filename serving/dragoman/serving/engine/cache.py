"""The key and value cache of a lane in numpy: packed, so that a graph gets contiguous leading slices without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.runtime import Encoded
from dragoman.serving.engine.shapes import EMPTY, LaneShape

__all__ = ["CacheLayout", "LaneCache"]

Tensor = npt.NDArray[np.floating]  # type: ignore[type-arg]


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The sizes that a cache depends on."""

    layers: int
    heads: int
    head_dim: int
    dtype: str = "float32"

    @property
    def cell_bytes(self) -> int:
        """Bytes of one token position: key and value of every layer."""
        return 2 * self.layers * self.heads * self.head_dim * np.dtype(self.dtype).itemsize


class LaneCache:
    """Caches of groups of `width` rows: `own` (rows, heads, target, head_dim), `cross` (groups, heads, source, head_dim).

    One tensor for the key and one for the value of each layer. `shape` is the room there is, `groups` what is in use.
    """

    def __init__(self, layout: CacheLayout, width: int) -> None:
        self.width, self.groups, self.shape = width, 0, EMPTY
        self._layout = layout
        self.own = [self._zeros(0, 0) for _ in range(2 * layout.layers)]
        self.cross = [self._zeros(0, 0) for _ in range(2 * layout.layers)]
        self.lengths = np.zeros(0, np.int32)  # (groups,) tokens of the source
        self.filled = np.zeros(0, np.int64)  # (groups,) tokens that each row of the group holds
        self._order = list(range(width))
        self.places: list[list[int]] = []  # where in its group each row lies; lists, because groups are small
        self._lie = np.zeros((0, width), np.int64)  # (groups, width) the same, counted from the first row of all

    @property
    def rows(self) -> int:
        return self.groups * self.width

    def resize(self, shape: LaneShape) -> None:
        """Lay everything out anew, one tensor after the other, so that only one is in memory twice."""
        if shape == self.shape:
            return
        if shape.groups < self.groups:
            raise ValueError(f"{shape} has no room for {self.groups} groups")
        if (shape.groups, shape.target) != (self.shape.groups, self.shape.target):
            used = int(self.filled[: self.groups].max(initial=0))
            for index, old in enumerate(self.own):
                self.own[index] = self._zeros(shape.groups * self.width, shape.target)
                self.own[index][: self.rows, :, :used] = old[: self.rows, :, :used]
        if (shape.groups, shape.source) != (self.shape.groups, self.shape.source):
            used = int(self.lengths[: self.groups].max(initial=0))
            for index, old in enumerate(self.cross):
                self.cross[index] = self._zeros(shape.groups, shape.source)
                self.cross[index][: self.groups, :, :used] = old[: self.groups, :, :used]
        self.lengths = _resized(self.lengths, shape.groups, self.groups)
        self.filled = _resized(self.filled, shape.groups, self.groups)
        self._lie = _resized(self._lie, shape.groups, self.groups)
        self.shape = shape

    def join(self, encoded: Encoded, indices: Sequence[int]) -> None:
        """Append a group for each of these sources. What a row finds in `own` is hidden by its position, 0."""
        first, last = self.groups, self.groups + len(indices)
        chosen = _run(indices)
        length = int(encoded.lengths[chosen].max())
        for kept, new in zip(self.cross, encoded.cross, strict=True):
            kept[first:last, :, :length] = new[chosen, :, :length]
        self.lengths[first:last] = encoded.lengths[chosen]
        self.filled[first:last] = 0
        self.places += [self._order] * len(indices)
        self._lie[first:last] = np.arange(first * self.width, last * self.width).reshape(-1, self.width)
        self.groups = last

    def leave(self, group: int) -> None:
        """Drop a group; the last one moves into its place."""
        last, width = self.groups - 1, self.width
        if group != last:
            length, used = self.lengths[last], self.filled[last]
            for kept in self.own:
                kept[group * width : (group + 1) * width, :, :used] = kept[last * width : (last + 1) * width, :, :used]
            for kept in self.cross:
                kept[group, :, :length] = kept[last, :, :length]
            self.lengths[group], self.filled[group], self.places[group] = length, used, self.places[last]
            self._lie[group] = self._lie[last] - (last - group) * width
        self.places.pop()
        self.groups = last

    def follow(self, parents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(rows,): where each row lies now that row r of group g continues row parents[g, r] of the group.

        The first to continue a parent takes its place; only the others are copied, into the places of rows that nobody
        continues, and only the positions in use. Ordering the rows instead would move nearly all of them at every step.
        """
        for group, continued in enumerate(parents.tolist()):
            if continued == self._order:
                continue
            places = [self.places[group][parent] for parent in continued]
            if free := [place for place in self._order if place not in places]:
                self._copy_others(group, places, free)
            self.places[group] = places
            self._lie[group] = [group * self.width + place for place in places]
        return self._lie[: self.groups].reshape(-1)

    def _copy_others(self, group: int, places: list[int], free: list[int]) -> None:
        """Give each row whose place an earlier one has taken a free place with a copy; changes `places`."""
        base, used = group * self.width, self.filled[group]
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
