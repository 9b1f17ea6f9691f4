"""The figures of one server that a simulation needs, derived from a load test.

A decoding step takes base + rows · per_row seconds, including the encoding of new requests. Both are fitted to the seconds
of the run, in which the server decoded batches of different sizes. If the machine is disturbed at times, slow seconds have
larger batches *because* they are slow, so the cost of a row is estimated too high rather than too low.

Time between two steps (answers are sent, new requests arrive) belongs to no step, but a server that is never idle spends it
every time: it is measured in the busiest second of the run and added to base.

The residuals of the fit are kept and resampled.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.errors import UsageError
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.scraper import ServerSample

__all__ = ["Floats", "ServerProfile", "StepTimes", "profile_of"]

Floats = npt.NDArray[np.float64]

_FEWEST_SAMPLES = 5
_NARROWEST = 1.3
"""The largest batches of the run must be so much larger than the smallest, or the cost of a row is a guess."""
_BUSY = 0.85
"""A second of which less was spent in steps had idle moments, and does not show the time between two steps."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long a step takes depending on its rows, and the residuals of the measured seconds."""

    base_s: float
    row_s: float
    disturbances: tuple[float, ...]
    most_rows: float

    def at(self, rows: float) -> float:
        return self.base_s + self.row_s * rows


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """One server under one kind of requests.

    `overhead_s` is what a request takes besides its steps and its waiting; `calls_at_once`, how many batches it decodes side
    by side.
    """

    steps: StepTimes
    lengths: tuple[int, ...]
    steps_per_token: float
    rows_per_request: int
    overhead_s: float = 0.0
    calls_at_once: int = 1

    @property
    def mean_steps(self) -> float:
        return self.steps_per_token * sum(self.lengths) / len(self.lengths)


def profile_of(result: RunResult) -> ServerProfile:
    """The profile that a run implies, without its overhead; UsageError when the run does not have the figures."""
    samples = [sample for sample in result.server if _is_complete(sample)]
    if len(samples) < _FEWEST_SAMPLES:
        raise UsageError(
            f"the load test has {len(samples)} seconds with the server's step times and needs {_FEWEST_SAMPLES}; let it "
            "read the metrics of a dragoman server (--metrics) and run longer"
        )
    lengths = [length for length, count in sorted(result.tally.target_lengths.items()) for _ in range(count) if length > 0]
    if not lengths:
        raise UsageError("the load test has no lengths of translations: repeat it with this dragoman")
    row_steps = sum(_number(sample.rows_per_step) * _number(sample.steps) for sample in samples)
    tokens = result.figures.target_token_rate * sum(_spans_s(samples))
    rows = result.info.beam_size or max(1, round(row_steps / tokens))
    steps = _fit(samples)
    calls_at_once = max(round(max(sample.calls_at_once or 1 for sample in samples)), 1)
    return ServerProfile(
        steps=dataclasses.replace(steps, base_s=steps.base_s + _between_steps_s(samples, calls_at_once)),
        lengths=tuple(lengths),
        # Searches run longer than their best hypothesis, and the end of a sentence is a step too.
        steps_per_token=max(row_steps / (tokens * rows), 1.0),
        rows_per_request=rows,
        calls_at_once=calls_at_once,
    )


def _fit(samples: Sequence[ServerSample]) -> StepTimes:
    """Least squares over seconds, each weighted by its number of steps; neither cost is negative."""
    rows = np.array([_number(sample.rows_per_step) for sample in samples])
    took_s = np.array([_number(sample.step_mean_s) for sample in samples])
    weights = np.array([_number(sample.steps) for sample in samples])
    mean_rows, mean_s = (float(np.average(values, weights=weights)) for values in (rows, took_s))
    if rows.max() < rows.min() * _NARROWEST:
        raise UsageError(
            f"all batches of the load test had about {mean_rows:.1f} rows, so what a row costs is unknown; run one whose "
            "load changes: --rate … --shape step"
        )
    spread = weights * (rows - mean_rows)
    row_s = max(float((spread * (took_s - mean_s)).sum() / (spread * (rows - mean_rows)).sum()), 0.0)
    base_s = max(mean_s - row_s * mean_rows, 0.0)
    row_s = row_s if base_s else mean_s / mean_rows
    disturbances = took_s / (base_s + row_s * rows)
    return StepTimes(base_s, row_s, tuple(map(float, disturbances)), float(rows.max()))


def _is_complete(sample: ServerSample) -> bool:
    return bool(sample.rows_per_step and sample.step_mean_s and sample.steps)


def _between_steps_s(samples: Sequence[ServerSample], calls_at_once: int) -> float:
    """Of the busiest second, time without a step for each step; 0 when the server was never busy enough to tell."""
    counts = [_number(sample.steps) for sample in samples]
    spans_s = [calls_at_once * span_s for span_s in _spans_s(samples)]
    decoding_s = [count * _number(sample.step_mean_s) for count, sample in zip(counts, samples, strict=True)]
    busy, place = max(
        (spent_s / span_s, place) for place, (spent_s, span_s) in enumerate(zip(decoding_s, spans_s, strict=True))
    )
    return max(spans_s[place] - decoding_s[place], 0.0) / counts[place] if busy >= _BUSY else 0.0


def _spans_s(samples: Sequence[ServerSample]) -> list[float]:
    """The time that each sample stands for: what passed since the one before."""
    gaps = [later.at_s - earlier.at_s for earlier, later in itertools.pairwise(samples)]
    return [gaps[0], *gaps]


def _number(value: float | None) -> float:
    return 0.0 if value is None else value
