"""Chosen tokens whose log-probabilities a step returns in addition to the best ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.runtime import TopTokens

__all__ = ["can_score_tokens", "with_scored"]


def can_score_tokens(session: Any) -> bool:  # noqa: ANN401 - onnxruntime has no types
    """Whether a step of this graph can give the log-probabilities of chosen tokens; older ones can't."""
    return any(given.name == "scored_tokens" for given in session.get_inputs())


def with_scored(
    best: TopTokens,
    scored_tokens: npt.NDArray[np.int64],  # (sequences, width, any number), -1 for none
    log_probs: npt.NDArray[np.float32],  # (rows, any number)
    logits: npt.NDArray[np.float32],
) -> TopTokens:
    """`best`, followed by the `scored_tokens`."""
    tokens = scored_tokens.reshape(log_probs.shape)
    missing = tokens < 0

    def joined(before: npt.NDArray[np.float32], behind: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return np.concatenate([before, np.where(missing, np.float32(-np.inf), behind)], axis=1)

    return TopTokens(
        np.concatenate([best.tokens, np.maximum(tokens, 0)], axis=1),
        joined(best.log_probs, log_probs),
        joined(best.logits, logits),
    )
