"""What a caller may change about a client-driven search: the scores of every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragoman.errors import UsageError

__all__ = ["Best", "Processor", "Step", "average", "processed"]

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Best:
    """The best next tokens of every row, (rows, candidates) each, best first."""

    tokens: NDArray[Any]
    log_probs: Floats
    logits: Floats


@dataclass(frozen=True, slots=True)
class Step:
    """What a processor sees: for each row its source's number, the tokens it has generated, and what it could generate next.

    sources (rows,); history (rows, steps) without the start token.
    """

    sources: NDArray[np.int64]
    history: NDArray[np.int64]
    best: Best


class Processor(Protocol):
    """Like a Hugging Face LogitsProcessor, on the best tokens instead of the whole vocabulary.

    Returns new log-probabilities (rows, candidates) for `step.best.tokens`; -inf forbids a token. Rows that are still
    being fed a forced prefix are not shown.
    """

    def __call__(self, step: Step) -> NDArray[Any]:
        """New log-probabilities for `step.best.tokens`."""


def processed(processor: Processor, step: Step, live: NDArray[np.bool_]) -> Best:
    """`step.best` with what `processor` makes of its rows `live`, best first again."""
    best = step.best
    if not live.any():
        return best
    shown = Best(best.tokens[live], best.log_probs[live], best.logits[live])
    wanted = np.asarray(processor(Step(step.sources[live], step.history[live], shown)), np.float32)
    if wanted.shape != shown.log_probs.shape or np.isnan(wanted).any():
        raise UsageError(
            f"the processor returned {'NaN' if wanted.shape == shown.log_probs.shape else wanted.shape}; "
            f"it must return log-probabilities of shape {shown.log_probs.shape}"
        )
    log_probs, logits = best.log_probs.copy(), best.logits.copy()
    log_probs[live] = wanted
    logits[live] = np.where(np.isfinite(wanted), shown.logits + (wanted - shown.log_probs), wanted)
    order = np.argsort(-log_probs, axis=1, kind="stable")
    return Best(*(np.take_along_axis(array, order, axis=1) for array in (best.tokens, log_probs, logits)))


def average(answers: Sequence[Best], candidates: int) -> Best:
    """The `candidates` best tokens by the mean of the models' probabilities.

    A token that is not among a model's candidates counts with the lowest probability that is, an upper bound; when
    the candidates are the whole vocabulary the mean is exact.
    """
    vocabulary = int(max(best.tokens.max() for best in answers)) + 1
    rows = len(answers[0].tokens)
    total = np.full((rows, vocabulary), -np.inf, np.float32)
    for best in answers:
        dense = np.full((rows, vocabulary), best.log_probs.min(axis=1, keepdims=True), np.float32)
        np.put_along_axis(dense, best.tokens.astype(np.int64), best.log_probs, axis=1)
        np.logaddexp(total, dense, out=total)
    total -= np.float32(np.log(len(answers)))
    order = np.argsort(-total, axis=1, kind="stable")[:, :candidates]
    log_probs = np.take_along_axis(total, order, axis=1)
    return Best(order, log_probs, log_probs)
