"""How large a lane's tensors are: every shape comes from a few buckets, so that it seldom changes.

A bucket that is too large costs attention over nothing, one that changes often costs copies: it grows as soon as it
must and shrinks only when it is far too large.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LaneShape", "bucket", "fitted"]


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


def fitted(current: LaneShape, groups: int, source: int, target: int) -> LaneShape:
    """The shape for what is needed, the current one where it still does."""
    if not groups:
        return EMPTY
    return LaneShape(
        _kept(current.groups, _power_of_two(groups)),
        _kept(current.source, bucket(source)),
        _kept(current.target, bucket(target)),
    )


def bucket(length: int) -> int:
    """8, 16, … 64, 80, 96, … 128, 160, …: the next of eight steps from one power of two to the next."""
    step = 8
    while step * 8 < length:
        step *= 2
    return -(-length // step) * step


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _kept(current: int, needed: int) -> int:
    return current if needed <= current <= 2 * needed else needed
