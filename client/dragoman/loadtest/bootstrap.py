"""How sure a figure is: the run is resampled, slice by slice.

Neighbouring requests share a queue, so they are no independent samples; stretches of time nearly are. Whole slices are
drawn with replacement, and each figure is computed anew from every draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.loadtest.histogram import value_of
from dragoman.loadtest.tally import Tally

__all__ = ["PERCENTS", "Draws", "draw"]

PERCENTS = (50.0, 90.0, 95.0, 99.0)
_BLOCK_S = 1.0
_FEWEST_BLOCKS = 10


@dataclass(frozen=True, slots=True)
class Draws:
    """Figures of every draw: (draws,) each, and latencies (draws, percents) in seconds."""

    rate: NDArray[np.float64]
    target_token_rate: NDArray[np.float64]
    error_share: NDArray[np.float64]
    latency_mean: NDArray[np.float64]
    latency: NDArray[np.float64]


def draw(tally: Tally, draws: int, seed: int) -> Draws:
    """Resample a run; a block is a second where the run is long enough, so that one batch's requests stay together."""
    counts, outputs, dues, sums, values = _blocks(tally)
    blocks = len(dues)
    random = np.random.default_rng(seed)
    weights = random.multinomial(blocks, np.full(blocks, 1 / blocks), size=draws).astype(np.float64)  # (draws, blocks)
    drawn = weights @ counts  # (draws, buckets)
    answered = drawn.sum(axis=1)
    due = weights @ dues[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return Draws(
            rate=weights @ outputs[:, 0] / tally.duration_s,
            target_token_rate=weights @ outputs[:, 1] / tally.duration_s,
            error_share=weights @ dues[:, 1] / due,
            latency_mean=weights @ sums / answered,
            latency=_percentiles(drawn, values),
        )


def _percentiles(drawn: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(draws, percents) from (draws, buckets) and the buckets' values, both in ascending order of value."""
    running = np.cumsum(drawn, axis=1)
    found = np.full((len(drawn), len(PERCENTS)), np.nan)
    for column, percent in enumerate(PERCENTS):
        ranks = np.ceil(running[:, -1] * percent / 100 - 1e-9)
        has_any = running[:, -1] > 0
        found[has_any, column] = values[(running < ranks[:, None]).sum(axis=1)[has_any]]
    return found


def _blocks(tally: Tally) -> tuple[NDArray[np.float64], ...]:
    """counts (blocks, buckets), outputs (blocks, 2), dues and errors (blocks, 2), latency sums (blocks,), bucket values."""
    slices = tally.ordered()
    per_block = max(1, min(round(_BLOCK_S / tally.slice_s), len(slices) // _FEWEST_BLOCKS))
    blocks = [slices[start : start + per_block] for start in range(0, len(slices), per_block)]
    buckets = sorted({bucket for slot in slices for bucket in slot.latency.counts}) or [0]
    place = {bucket: column for column, bucket in enumerate(buckets)}
    counts = np.zeros((len(blocks), len(buckets)))
    outputs, dues, sums = np.zeros((len(blocks), 2)), np.zeros((len(blocks), 2)), np.zeros(len(blocks))
    for row, block in enumerate(blocks):
        for slot in block:
            outputs[row] += (slot.answered, slot.target_tokens)
            dues[row] += (slot.due, slot.errors)
            sums[row] += slot.latency.sum_s
            for bucket, count in slot.latency.counts.items():
                counts[row, place[bucket]] += count
    return counts, outputs, dues, sums, np.array([value_of(bucket) for bucket in buckets]) * 1e-6
