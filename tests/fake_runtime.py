"""A runtime without a model: its output is a hash of the source and of the row's tokens.

A sequence or a row that was mixed up, lost or not moved changes the output: property tests compare with answers given alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dragoman.search.constraints import Ids
from dragoman.serving.engine.kv_cache import EMPTY, CacheShape, fitted
from dragoman.serving.engine.runtime import Encoded, ForcedPiece, TopTokens
from dragoman.serving.engine.slots import KVSlots

__all__ = ["FakeDecoder", "FakeRuntime"]

_Hashes = npt.NDArray[np.uint64]
_Tokens = npt.NDArray[np.float64]
_NOTHING: _Tokens = np.zeros(0)


class FakeRuntime:
    """Deterministic and instant; positions that a real cache has no tokens or no room for are errors."""

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
        self.can_score_tokens, self.is_lost = True, False
        self.forced: FakeForced | None = FakeForced(self)
        self.computing = contextlib.nullcontext()

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        lengths = np.array([len(source) for source in sources], np.int32)
        padded = np.full((len(sources), lengths.max()), -7.0)
        for row, source in enumerate(sources):
            padded[row, : len(source)] = source
        return Encoded([padded], lengths)

    def decoder(self, width: int, sequences: int) -> FakeDecoder:
        return FakeDecoder(self, width)


class FakeForced:
    """Forced decoding of what the fake decoder generates; target token n looks at source token n alone."""

    tokens_at_once, aligns_when_fed, max_candidates = 4, False, None

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime

    def reader(self, encoded: Encoded, target_tokens: int) -> FakeReader:
        return FakeReader(self._runtime, encoded, target_tokens)


class FakeReader:
    """A decoder of one row."""

    def __init__(self, runtime: FakeRuntime, encoded: Encoded, target_tokens: int) -> None:
        self._vocabulary, self._source = runtime.vocabulary, int(encoded.lengths[0])
        self._decoder, self._read = runtime.decoder(1, 1), 0
        self._decoder.join(encoded, [0], [target_tokens])

    def read(self, tokens: Sequence[int], targets: Sequence[int] | None, candidates: int) -> ForcedPiece:
        log_probs, alignment = np.zeros(len(tokens), np.float32), np.zeros((len(tokens), self._source), np.float32)
        best = []
        for at, (token, target) in enumerate(zip(tokens, targets or tokens, strict=True)):
            fed, position = np.array([[token]]), np.array([self._read])
            top = self._decoder.step(fed, position, np.zeros((1, 1), np.int64), self._vocabulary)
            log_probs[at] = top.log_probs[0][top.tokens[0] == target][0]
            alignment[at, min(self._read, self._source - 1)] = 1.0
            best.append((top.tokens[0, :candidates], top.log_probs[0, :candidates]))
            self._read += 1
        if targets is None:
            return ForcedPiece(log_probs[:0], alignment, np.empty((0, 0), np.int64), np.empty((0, 0), np.float32))
        return ForcedPiece(log_probs, alignment, np.stack([one for one, _ in best]), np.stack([one for _, one in best]))


class FakeDecoder:
    """Remembers the tokens of every source and of every row."""

    def __init__(self, runtime: FakeRuntime, width: int) -> None:
        self.width = width
        self._runtime, self._shape = runtime, EMPTY
        self._sources: list[_Tokens] = []  # of each sequence
        self._rows: list[list[_Tokens]] = []  # (sequences, width)

    @property
    def held_slots(self) -> KVSlots:
        return self._shape.slots(self.width)

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        self._sources += [encoded.cross[0][index][: encoded.lengths[index]] for index in indices]
        self._rows += [[_NOTHING] * self.width for _ in indices]
        self.reserve(max(target_tokens))

    def encoded(self, sequence: int) -> Encoded | None:
        source = self._sources[sequence]
        return Encoded([source[None]], np.array([len(source)], np.int32))

    def leave(self, sequence: int) -> None:
        for column in (self._sources, self._rows):
            last = column.pop()
            if sequence < len(column):
                column[sequence] = last

    def reserve(self, target_tokens: int) -> None:
        old, new = self._shape, self._needed(target_tokens)
        self._shape = CacheShape(max(old.sequences, new.sequences), max(old.source, new.source), max(old.target, new.target))

    def release(self, target_tokens: int) -> None:
        self._shape = self._needed(target_tokens)

    def step(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int) -> TopTokens:
        logits = self._logits(tokens, positions, parents)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :candidates]
        self._last = best[:, :1], positions.copy(), parents, candidates
        return _of(logits, best)

    def step_scoring(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int, scored_tokens: Ids) -> TopTokens:
        logits = self._logits(tokens, positions, parents)
        wanted = scored_tokens.reshape(len(logits), -1)
        best, more = _of(logits, np.argsort(-logits, axis=1, kind="stable")[:, :candidates]), _of(logits, wanted)
        for numbers in (more.log_probs, more.logits):
            numbers[wanted < 0] = -np.inf
        return TopTokens(
            np.concatenate([best.tokens, np.maximum(more.tokens, 0)], 1),
            np.concatenate([best.log_probs, more.log_probs], 1),
            np.concatenate([best.logits, more.logits], 1),
        )

    def _logits(self, tokens: Ids, positions: Ids, parents: Ids) -> npt.NDArray[np.float64]:
        if max(positions) >= self._shape.target:
            raise ValueError(f"position {max(positions)} where there is room for {self._shape.target} tokens")
        for sequence, rows in enumerate(self._rows):
            position = int(positions[sequence])
            if any(len(rows[parent]) < position for parent in parents[sequence]):
                raise ValueError(f"position {position} of a row that has fewer tokens")
            self._rows[sequence] = [
                np.append(rows[parent][:position], float(token))
                for parent, token in zip(parents[sequence], tokens[sequence], strict=True)
            ]
        seeds = [_seed(source, row) for source, rows in zip(self._sources, self._rows, strict=True) for row in rows]
        return _noise(np.array(seeds, np.uint64), self._runtime.vocabulary)

    def step_on(self) -> TopTokens:
        tokens, positions, parents, candidates = self._last
        return self.step(tokens, positions + 1, parents, candidates)

    def _needed(self, target_tokens: int) -> CacheShape:
        longest = max((len(source) for source in self._sources), default=0)
        return fitted(EMPTY, len(self._sources), longest, target_tokens)


def _seed(source: _Tokens, row: _Tokens) -> int:
    digest = hashlib.blake2b(b"/".join(part.tobytes() for part in (source, -source, row, -row)), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _of(logits: npt.NDArray[np.float64], tokens: Ids) -> TopTokens:
    """The entries of (rows, vocabulary) for `tokens` (rows, any number)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    index = np.arange(len(logits))[:, None]
    return TopTokens(tokens, log_probs[index, tokens].astype(np.float32), logits[index, tokens].astype(np.float32))


def _noise(seeds: _Hashes, count: int) -> npt.NDArray[np.float64]:
    """(rows, count) numbers that look normal, from a splitmix of seed and column."""
    mixed = seeds[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    uniform = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2**53
    spread: npt.NDArray[np.float64] = np.log(uniform + 1e-12) - np.log1p(1e-12 - uniform)  # logistic
    return spread
