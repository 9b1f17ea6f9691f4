"""The result of a search."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Finish", "Hypothesis", "common_beginning"]

Finish = Literal["eos", "length"]
"""Why a hypothesis ended: the model generated its end token, or `max_length` was reached."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation in token ids: the forced prefix, what was generated and, when there is one, the end token.

    `score` is the sum of the generated tokens' log-probabilities over their number ** length_penalty; a forced
    token costs nothing.
    """

    tokens: tuple[int, ...]
    score: float
    finish: Finish


def common_beginning(rows: Sequence[Sequence[int]]) -> list[int]:
    """The longest beginning that all of these tokens share."""
    beginning = itertools.takewhile(lambda tokens: len(set(tokens)) == 1, zip(*rows, strict=False))
    return [tokens[0] for tokens in beginning]
