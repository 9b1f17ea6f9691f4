"""A histogram of magnitudes of a tensor, whose range grows with the values."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Magnitudes"]

BINS = 2048


class Magnitudes:
    """Counts of |x| in equal bins from 0 to `limit`, which doubles when a larger number comes."""

    def __init__(self) -> None:
        self.limit = 0.0
        self.counts: NDArray[np.float64] = np.zeros(BINS)

    def add(self, values: Tensor) -> None:
        """Count all elements of `values`."""
        magnitudes = values.detach().abs().float().flatten()
        largest = float(magnitudes.max())
        if self.limit == 0.0:
            self.limit = largest
        while largest > self.limit:  # two bins become one: nothing that was counted is lost
            self.counts = np.concatenate([self.counts.reshape(-1, 2).sum(1), np.zeros(BINS // 2)])
            self.limit *= 2
        if self.limit > 0.0:
            self.counts += torch.histc(magnitudes, bins=BINS, min=0.0, max=self.limit).double().numpy()

    def range_for(self, levels: int) -> float:
        """The largest magnitude to represent with `levels` steps so that the mean squared error is least.

        What lies beyond it is clipped, which costs (x − range)²; what lies within is rounded, which costs
        (range / levels)² / 12 on average. A rare large value is better clipped than paid for by the rounding of all others.
        """
        occupied = np.flatnonzero(self.counts)
        if not len(occupied):
            return 0.0
        width = self.limit / BINS
        centres = (np.arange(BINS) + 0.5) * width
        edges = (np.arange(BINS) + 1) * width  # candidate i represents bins 0 … i
        # Σ n (x − c)² over the bins beyond a candidate c, from the sums of n, n·x and n·x² beyond it
        count, first, second = (_beyond(self.counts * centres**power) for power in range(3))
        clipped = second - 2 * edges * first + edges**2 * count
        rounded = (self.counts.sum() - count) * (edges / levels) ** 2 / 12
        last = int(occupied[-1])
        return float(edges[np.argmin((clipped + rounded)[: last + 1])])


def _beyond(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of what lies after each element."""
    return np.concatenate([np.cumsum(values[::-1])[::-1][1:], [0.0]])
