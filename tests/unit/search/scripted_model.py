"""A pretend model for searches: a table from the row's tokens to log-probabilities, by hashing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragoman.search import DecodingOptions, Hypothesis, SearchBatch, search_batch
from pretend_words import WORDS

VOCABULARY, EOS, START = 23, 0, 22


@dataclass(frozen=True)
class Tokens:
    ends: tuple[int, ...] = (EOS,)
    decoder_start: int = START


def logits(source: int, row: list[int]) -> np.ndarray:
    """(vocabulary,), the same for the same source and row always."""
    return np.random.default_rng([source, *row]).normal(0.0, 2.0, VOCABULARY).astype(np.float32)


class Decoding:
    """Searches of one width; `begin` may be called between any two steps."""

    def __init__(self, width: int) -> None:
        self.batch: SearchBatch = search_batch(width, Tokens(), VOCABULARY, words=WORDS)
        self.answers: dict[int, tuple[Hypothesis, ...]] = {}
        self.decided: dict[int, list[tuple[int, ...]]] = {}
        self._standing: list[tuple[int, list[list[int]]]] = []

    def begin(self, source: int, options: DecodingOptions) -> None:
        self.batch.join(options)
        self._standing.append((source, [[] for _ in range(options.beam_size)]))

    def step(self) -> None:
        batch, k = self.batch, self.batch.candidates
        scored_tokens = batch.scored_tokens()
        best = np.zeros((3, len(batch), batch.width, k + (0 if scored_tokens is None else scored_tokens.shape[-1])))
        for group, (source, rows) in enumerate(self._standing):
            fed = zip(batch.parents[group].tolist(), batch.tokens[group].tolist(), strict=True)
            rows[:] = [[*rows[parent], token] for parent, token in fed]
            for number, row in enumerate(rows):
                said = logits(source, row)
                order = np.argsort(-said, kind="stable")[:k]
                if scored_tokens is not None:
                    order = np.concatenate([order, scored_tokens[group, number]])
                log_probs = said - np.log(np.exp(said).sum())
                best[:, group, number] = np.where(
                    order < 0, [[0], [-np.inf], [-np.inf]], [order, log_probs[order], said[order]]
                )
        done = batch.advance(best[0].astype(np.int64), best[1].astype(np.float32), best[2].astype(np.float32))
        for group, (source, _) in enumerate(self._standing):
            self.decided.setdefault(source, []).append(batch.decided(group))
        for group in done:
            self.answers[self._standing[group][0]] = batch.hypotheses(group)
            self.leave(group)

    def leave(self, group: int) -> None:
        self.batch.leave(group)
        self._standing[group] = self._standing[-1]
        self._standing.pop()

    def finish(self) -> Decoding:
        while len(self.batch):
            self.step()
        return self


def alone(source: int, options: DecodingOptions) -> tuple[Hypothesis, ...]:
    decoding = Decoding(options.beam_size)
    decoding.begin(source, options)
    return decoding.finish().answers[source]
