"""Sampling: temperature, then top-k, then top-p, then one draw from the request's own generator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dragoman.search.options import DecodingOptions

__all__ = ["Sampler"]


class Sampler:
    """Draws the tokens of one request; the same seed gives the same text whatever else is in the batch."""

    def __init__(self, options: DecodingOptions) -> None:
        self._temperature, self._top_k, self._top_p = options.temperature, options.top_k, options.top_p
        self._random = np.random.Generator(np.random.PCG64(options.seed))

    def pick(self, scores: npt.NDArray[np.float32]) -> int:
        """Index of the drawn candidate; `scores` (candidates,) are processed logits."""
        order = np.argsort(-scores, kind="stable")[: self._top_k or None]
        scaled = scores[order].astype(np.float64) / self._temperature
        if not np.isfinite(scaled[0]):
            return int(order[0])  # everything is forbidden: what greedy search would take
        weights = np.exp(scaled - scaled[0])
        weights /= weights.sum()
        if self._top_p < 1.0:
            better = np.cumsum(weights) - weights  # the mass before each candidate
            weights = np.where(better < self._top_p, weights, 0.0)
        cumulative = np.cumsum(weights)
        drawn = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        return int(order[min(drawn, np.count_nonzero(weights) - 1)])
