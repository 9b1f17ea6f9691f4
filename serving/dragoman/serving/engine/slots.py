"""KV slots: how much cache sequences take. A slot holds the key and value of one token of one row, in every layer.

In paged caches a row takes the slots of its own tokens. In padded caches every row of a batch takes those of the longest,
with lengths rounded to a few buckets, so that the shapes of tensors seldom change.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["NO_SLOTS", "KVSlots", "Usage", "bucket", "encoder_slots", "power_of_two"]


class KVSlots(NamedTuple):
    """Slots of the self-attention and of the cross-attention cache."""

    own: int
    cross: int

    def plus(self, other: KVSlots) -> KVSlots:
        return KVSlots(self.own + other.own, self.cross + other.cross)

    def fit(self, limit: KVSlots) -> bool:
        return self.own <= limit.own and self.cross <= limit.cross


NO_SLOTS = KVSlots(0, 0)


class Usage(NamedTuple):
    """The cache use of the sequences of a batch."""

    sequences: int = 0
    source_sum: int = 0
    source_max: int = 0
    target_sum: int = 0
    target_max: int = 0

    @classmethod
    def of(cls, lengths: Iterable[tuple[int, int]]) -> Usage:
        """The use of sequences with these source and target tokens."""
        listed = list(lengths)
        if not listed:
            return cls()
        sources, targets = zip(*listed, strict=True)
        return cls(len(listed), sum(sources), max(sources), sum(targets), max(targets))

    def plus(self, source: int, target: int) -> Usage:
        return Usage(
            self.sequences + 1,
            self.source_sum + source,
            max(self.source_max, source),
            self.target_sum + target,
            max(self.target_max, target),
        )

    def minus(self, source: int, target: int) -> Usage:
        """The use without one of them. The longest is not determined again: only for caches without padding."""
        sequences, source_sum, source_max, target_sum, target_max = self
        return Usage(sequences - 1, source_sum - source, source_max, target_sum - target, target_max)

    def slots(self, width: int, padded: bool) -> KVSlots:
        """The slots that they take in batches of `width` rows per sequence."""
        if not self.sequences:
            return NO_SLOTS
        if padded:
            sequences = power_of_two(self.sequences)
            return KVSlots(sequences * width * bucket(self.target_max), sequences * bucket(self.source_max))
        return KVSlots(width * self.target_sum, self.source_sum)


def encoder_slots(source_tokens: Sequence[int], padded: bool) -> int:
    """Token positions that are computed when sources of these lengths are encoded together."""
    return max(source_tokens) * len(source_tokens) if padded else sum(source_tokens)


@functools.lru_cache(maxsize=4096)
def bucket(length: int) -> int:
    """16, 32, 48, 64, 96, 128, 192, …: powers of two and the middles between them."""
    power = max(16, power_of_two(length))
    middle = power // 4 * 3
    return middle if length <= middle and middle > 24 else power


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()
