"""How large a lane's tensors are: every shape comes from a few buckets, so that it seldom changes.

A change costs a copy of everything. Where attention looks only at the tokens that are there, room to spare costs nothing
(measured: a cache of 128 positions with 10 in use takes the step no longer than one of 16), and a shape only grows until
others need the memory. Where it looks at the whole cache, a shape also shrinks when it is far too large.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LaneShape", "bucket", "encoder_cells", "fitted", "grown"]


@dataclass(frozen=True, slots=True)
class LaneShape:
    """Room for `groups` sources of `source` tokens and, in each of their rows, `target` tokens."""

    groups: int
    source: int
    target: int

    def self_cells(self, width: int) -> int:
        """Token positions of the self-attention cache: the unit in which memory is counted."""
        return self.groups * width * self.target

    @property
    def cross_cells(self) -> int:
        """Token positions of the cross-attention cache."""
        return self.groups * self.source


EMPTY = LaneShape(0, 0, 0)


def encoder_cells(source_tokens: Sequence[int], padded: bool) -> int:
    """Token positions that are computed when sources of these lengths are encoded together."""
    return max(source_tokens) * len(source_tokens) if padded else sum(source_tokens)


def fitted(current: LaneShape, groups: int, source: int, target: int) -> LaneShape:
    """The shape for what is needed, the current one where it still does."""
    if not groups:
        return EMPTY
    return LaneShape(
        _kept(current.groups, _power_of_two(groups)),
        _kept(current.source, bucket(source)),
        _kept(current.target, bucket(target)),
    )


def grown(current: LaneShape, groups: int, source: int, target: int) -> LaneShape:
    """A shape that holds what is needed and what there was room for before."""
    needed = fitted(EMPTY, groups, source, target)
    return LaneShape(
        max(current.groups, needed.groups), max(current.source, needed.source), max(current.target, needed.target)
    )


@functools.lru_cache(maxsize=4096)
def bucket(length: int) -> int:
    """16, 32, 48, 64, 96, 128, 192, …: powers of two and the middles between them."""
    power = max(16, _power_of_two(length))
    middle = power // 4 * 3
    return middle if length <= middle and middle > 24 else power


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _kept(current: int, needed: int) -> int:
    return current if needed <= current <= 4 * needed else needed
