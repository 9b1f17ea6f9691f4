"""The sizes of KV caches: of one slot, and of a padded cache that a step reads as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.bundle.consistency import ITEM_BYTES
from dragoman.serving.engine.slots import KVSlots, bucket, power_of_two

__all__ = ["EMPTY", "CacheLayout", "CacheShape", "fitted"]


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
        return 2 * self.layers * self.heads * self.head_dim * ITEM_BYTES[self.dtype]


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
    """The smallest sufficient shape, or the current one if it is still adequate: for caches that a step reads as a whole."""
    if not sequences:
        return EMPTY
    return CacheShape(
        _kept(current.sequences, power_of_two(sequences)),
        _kept(current.source, bucket(source)),
        _kept(current.target, bucket(target)),
    )


def _kept(current: int, needed: int) -> int:
    return current if needed <= current <= 4 * needed else needed
