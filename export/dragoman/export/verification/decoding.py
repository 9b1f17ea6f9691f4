"""Decodes a fixed batch of sources with any model that can take a step: the simplest loop around the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dragoman.export.verification.answers import Answer, Answers, FloatArray, IntArray
from dragoman.search import DecodingOptions, TokenIds, search_batch

__all__ = ["Stepper", "TopTokens", "decode", "force"]


class TopTokens(NamedTuple):
    """The best next tokens of each row, (rows, k) each, best first."""

    tokens: IntArray
    log_probs: FloatArray
    logits: FloatArray


class Stepper(Protocol):
    """A model and the caches of one batch."""

    def start(self, sources: Sequence[Sequence[int]], shortlist: int = 0) -> None:
        """Encode the sources; the caches are empty. All choose from this shortlist, where there are several."""

    def step(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray, candidates: int) -> TopTokens:
        """One token a row. `tokens`, `parents` (groups, width); `positions`, `groups` (groups,).

        Group g goes on with what was group `groups[g]` at the step before, and its row w with that group's row
        `parents[g, w]`.
        """


def decode(
    stepper: Stepper,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    tokens: TokenIds,
    vocabulary: int,
    *,
    choices: int | None = None,
    shortlist: int = 0,
) -> Answers:
    """The best hypothesis of each source."""
    batch = search_batch(options.beam_size, tokens, vocabulary, choices)
    for _ in sources:
        batch.join(options)
    stepper.start(sources, shortlist)
    answers: dict[int, Answer] = {}
    owners = list(range(len(sources)))  # the source of each group
    groups: NDArray[np.int64] = np.arange(len(sources))
    while owners:
        best = stepper.step(batch.tokens, batch.positions, groups, batch.parents, batch.candidates)
        groups = np.arange(len(owners))
        for group in batch.advance(*best):
            best_hypothesis = batch.hypotheses(group)[0]
            answers[owners[group]] = Answer(best_hypothesis.tokens, best_hypothesis.score)
            batch.leave(group)
            owners[group], groups[group] = owners[-1], groups[-1]  # the last group takes the place of the one that left
            owners.pop()
            groups = groups[:-1]
    return [answers[index] for index in range(len(sources))]


def force(
    stepper: Stepper, source: Sequence[int], fed: Sequence[int], candidates: int, shortlist: int = 0
) -> tuple[IntArray, FloatArray]:
    """(fed tokens, candidates) twice: the best tokens that follow each of them, and their log-probabilities."""
    stepper.start([source], shortlist)
    alone = np.zeros(1, np.int64)
    steps = [
        stepper.step(np.array([[token]]), np.array([position]), alone, alone[None], candidates)
        for position, token in enumerate(fed)
    ]
    return np.concatenate([step.tokens for step in steps]), np.concatenate([step.log_probs for step in steps])
