"""A model without a model: its output is a hash of the source and of the row's tokens, read from the caches.

Its caches are real, so a slot that was mixed up, leaked or not moved changes the output: property tests compare with
answers given alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.kv_cache import CacheLayout, KVCache
from dragoman.serving.engine.runtime import Encoded, TopTokens
from dragoman.serving.engine.slots import KVSlots

__all__ = ["FakeDecoder", "FakeRuntime"]

_Hashes = npt.NDArray[np.uint64]


class FakeRuntime:
    """Deterministic, instant, and as fussy about its caches as a real one."""

    def __init__(
        self,
        vocabulary: int,
        max_candidates: int | None = None,
        *,
        calls_at_once: int = 1,
        rows_together: int = 0,
        pads: bool = True,
    ) -> None:
        self.vocabulary, self.max_candidates = vocabulary, max_candidates
        self.calls_at_once, self.rows_together, self.pads = calls_at_once, rows_together, pads
        self.computing = contextlib.nullcontext()

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        lengths = np.array([len(source) for source in sources], np.int32)
        padded = np.full((len(sources), 1, lengths.max(), 1), -7.0, np.float64)
        for row, source in enumerate(sources):
            padded[row, 0, : len(source), 0] = source
        return Encoded([padded, -padded], lengths)

    def decoder(self, width: int, sequences: int) -> FakeDecoder:  # noqa: ARG002
        return FakeDecoder(self, width)


class FakeDecoder:
    """Keys hold the token ids, values their negatives."""

    def __init__(self, runtime: FakeRuntime, width: int) -> None:
        self._runtime = runtime
        self._cache = KVCache(CacheLayout(layers=1, heads=1, head_dim=1, dtype="float64"), width)
        self.width = width

    @property
    def held_slots(self) -> KVSlots:
        return self._cache.shape.slots(self.width)

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        self._cache.make_room(len(indices), int(encoded.lengths[list(indices)].max()), max(target_tokens))
        self._cache.join(encoded, indices)

    def leave(self, sequence: int) -> None:
        self._cache.leave(sequence)

    def reserve(self, target_tokens: int) -> None:
        self._cache.make_room(0, 0, target_tokens)

    def release(self, target_tokens: int) -> None:
        self._cache.release(target_tokens)

    def step(
        self,
        tokens: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        parents: npt.NDArray[np.int64],
        candidates: int,
    ) -> TopTokens:
        cache, width = self._cache, self.width
        key, value = cache.own
        rows, at = np.arange(cache.rows), np.repeat(positions, width)
        places = cache.follow(parents)
        key[places, 0, at, 0], value[places, 0, at, 0] = tokens.ravel(), -tokens.ravel()
        cache.filled[: cache.sequences] = positions + 1
        seeds = np.array([self._seed(int(places[row]), int(at[row]) + 1) for row in rows], np.uint64)
        logits = _noise(seeds, self._runtime.vocabulary)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :candidates]
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        index = rows[:, None]
        self._last = best[:, :1], positions.copy(), parents, candidates
        return TopTokens(best, log_probs[index, best].astype(np.float32), logits[index, best].astype(np.float32))

    def step_on(self) -> TopTokens:
        tokens, positions, parents, candidates = self._last
        return self.step(tokens, positions + 1, parents, candidates)

    def _seed(self, row: int, length: int) -> int:
        cache, sequence = self._cache, row // self.width
        used = int(cache.lengths[sequence])
        parts = [cache.cross[0][sequence, 0, :used, 0], cache.cross[1][sequence, 0, :used, 0]]
        parts += [cache.own[0][row, 0, :length, 0], cache.own[1][row, 0, :length, 0]]
        digest = hashlib.blake2b(b"/".join(part.tobytes() for part in parts), digest_size=8)
        return int.from_bytes(digest.digest(), "little")


def _noise(seeds: _Hashes, count: int) -> npt.NDArray[np.float64]:
    """(rows, count) numbers that look normal, from a splitmix of seed and column."""
    mixed = seeds[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    uniform = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2**53
    spread: npt.NDArray[np.float64] = np.log(uniform + 1e-12) - np.log1p(1e-12 - uniform)  # logistic
    return spread
