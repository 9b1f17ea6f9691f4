"""Detects translations that omit content or do not end, by figures that cost almost nothing.

Models omit what they can not place, and repeat a phrase until they are stopped. Both show in the number of tokens: a
translation of at most half the length of its source, or of several times its length, is suspicious, and so is one that
repeats itself.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dragoman.search import DecodingOptions

__all__ = [
    "Evidence",
    "OnSuspicion",
    "Suspicion",
    "collect_evidence",
    "coverage_of",
    "is_better",
    "longest_answer",
    "other_search",
]

OnSuspicion = Literal["ignore", "report", "retry"]
"""What to do about suspicious sentences: nothing, report them, or translate them again."""
Suspicion = Literal["short", "long", "repetition", "unfinished", "uncovered"]

_SHORT, _LONG = 0.5, 2.5
"""Target tokens for each source token. Of 600 reference translations of Tatoeba, 3 are as short and none as long."""
_FEW = 8
"""Source tokens. Shorter sentences have translations of any length."""
_UNCOVERED = 0.45
"""Of the source. Of 342 sentences of Tatoeba 1% are below, most of which lack something; unsplit paragraphs have 0.47."""
_SEVERAL_TIMES, _SPARE = 4, 16
_LONGEST_PERIOD = 8
_TIMES, _LEAST = 3, 9
"""A phrase that occurs so many times in a row, in so many tokens at least, is endless repetition."""
_WIDE = 4


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one sentence's translation looks like. `suspicions` is empty where nothing is wrong.

    `coverage`: how much of the source the translation has looked at, from 0 to 1; None where the bundle can't tell.
    """

    length_ratio: float
    suspicions: tuple[Suspicion, ...] = ()
    coverage: float | None = None


def collect_evidence(source_tokens: int, target: Sequence[int], ended: bool, coverage: float | None = None) -> Evidence:
    """The evidence for a translation; source and target without their end tokens. `ended`: the model ended it."""
    ratio = len(target) / max(source_tokens, 1)
    found: list[Suspicion] = []
    if source_tokens >= _FEW and ratio <= _SHORT:
        found.append("short")
    if source_tokens >= _FEW and ratio >= _LONG:
        found.append("long")
    if _repeats(target):
        found.append("repetition")
    if not ended:
        found.append("unfinished")
    if source_tokens >= _FEW and coverage is not None and coverage < _UNCOVERED:
        found.append("uncovered")
    return Evidence(round(ratio, 3), tuple(found), None if coverage is None else round(coverage, 3))


def coverage_of(alignment: npt.NDArray[np.float32]) -> float:
    """The share of the source that was attended to: (target tokens, source tokens) of attention, without special tokens.

    A source token is covered when all target tokens together give it a total attention of one.
    """
    if not alignment.size:
        return 1.0
    return float(np.minimum(alignment.sum(axis=0), 1.0).mean())


def longest_answer(source_tokens: int) -> int:
    """The length at which the translation of a sentence is stopped: beyond it is endless repetition."""
    return _SEVERAL_TIMES * source_tokens + _SPARE


def other_search(options: DecodingOptions, evidence: Evidence, source_tokens: int, widest: int) -> DecodingOptions:
    """The search settings of a second translation: a wider beam without repetitions, or with a minimum length."""
    changed: dict[str, object] = {"sampling": False, "beam_size": max(options.beam_size, min(_WIDE, widest))}
    if {"short", "uncovered"} & set(evidence.suspicions):
        shortest = round(_SHORT * source_tokens) + 2  # with the end token, and longer than what is suspicious
        changed["min_length"] = min(max(options.min_length, shortest), options.max_length)
    if {"long", "repetition", "unfinished"} & set(evidence.suspicions) and not options.no_repeat_ngram_size:
        changed["no_repeat_ngram_size"] = 3
    return dataclasses.replace(options, **changed)  # type: ignore[arg-type]


def is_better(second: tuple[Evidence, float], first: tuple[Evidence, float]) -> bool:
    """Compared by evidence, then by score and coverage; both scores have the same length penalty."""
    now, before = (len(each[0].suspicions) for each in (second, first))
    return now < before or (now == before and _merit(*second) > _merit(*first))


def _merit(evidence: Evidence, score: float) -> float:
    """The score, where each uncovered source token costs as much as an improbable token."""
    return score + math.log(max(evidence.coverage, 1e-3)) if evidence.coverage is not None else score


def _repeats(tokens: Sequence[int]) -> bool:
    """Whether a phrase of a few tokens occurs several times in a row."""
    for period in range(1, _LONGEST_PERIOD + 1):
        run = 0
        for at in range(period, len(tokens)):
            run = run + 1 if tokens[at] == tokens[at - period] else 0
            if run + period >= max(_TIMES * period, _LEAST):
                return True
    return False
