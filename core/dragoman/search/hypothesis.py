"""What a search answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finish", "Hypothesis"]

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
