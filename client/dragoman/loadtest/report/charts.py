"""The plots of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dragoman.loadtest.capacity import TriedRate
from dragoman.loadtest.quantities import format_duration
from dragoman.loadtest.report.chart import Chart, Hover
from dragoman.loadtest.report.scale import Scale, short_duration, short_number
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.slo import Objective
from dragoman.loadtest.tally import Slice

__all__ = ["capacity_chart", "charts_of"]

_PERCENTS = ((50.0, "p50"), (90.0, "p90"), (99.0, "p99"))
_BINS = 48
_HDR_POINTS = 160


def charts_of(result: RunResult, objectives: Sequence[Objective] = ()) -> list[str]:
    """Every plot the run has data for, as SVG in a figure."""
    drawn = []
    if result.tally.latency.count:
        drawn += [_latency_over_time(result, objectives), _rate_over_time(result)]
        drawn += [_distribution(result), _percentiles(result), _rate_against_latency(result)]
    drawn.append(_errors_over_time(result))
    drawn += [chart for chart in (_batch_over_time(result), _queue_over_time(result)) if chart]
    return drawn


def capacity_chart(probes: Sequence[TriedRate]) -> str:
    """Latency against rate over the probes of a search for the capacity."""
    tried = sorted((probe for probe in probes if not math.isnan(probe.p99_s)), key=lambda probe: probe.rate)
    chart = Chart(
        "Rates tried",
        Scale.linear(max(probe.rate for probe in tried), *Chart.x_range()),
        Scale.logarithmic(min(p.p50_s for p in tried) / 1.2, max(p.p99_s for p in tried) * 1.2, *Chart.y_range()),
        "requests offered per second",
        short_number,
        short_duration,
    )
    chart.line([(probe.rate, probe.p50_s) for probe in tried], "p50", "p50")
    chart.line([(probe.rate, probe.p99_s) for probe in tried], "p99", "p99")
    chart.dots([(probe.rate, probe.p99_s) for probe in tried if probe.holds], "good", "held")
    chart.dots([(probe.rate, probe.p99_s) for probe in tried if not probe.holds], "bad", "broke an objective")
    chart.hover(
        Hover(
            probe.rate,
            f"{probe.rate:.1f}/s {'held' if probe.holds else 'broke'}",
            (("p50", format_duration(probe.p50_s)), ("p99", format_duration(probe.p99_s))),
        )
        for probe in tried
    )
    return chart.render()


def _over_time(result: RunResult, title: str, highest: float, format_y: Callable[[float], str]) -> Chart:
    tally = result.tally
    x = Scale(0.0, tally.duration_s, *Chart.x_range())
    return Chart(title, x, Scale.linear(highest, *Chart.y_range()), "seconds since the start", short_number, format_y)


def _moments(result: RunResult) -> list[tuple[float, Slice]]:
    """The middle of every whole slice, and the slice."""
    tally = result.tally
    whole = int(tally.duration_s / tally.slice_s + 1e-6)
    return [((index + 0.5) * tally.slice_s, slot) for index, slot in enumerate(tally.ordered()[:whole])]


def _latency_over_time(result: RunResult, objectives: Sequence[Objective]) -> str:
    moments = [(at, slot.latency.percentiles_s([p for p, _ in _PERCENTS])) for at, slot in _moments(result)]
    highest = max((values[-1] for _, values in moments if not math.isnan(values[-1])), default=0.0)
    limits = [one for one in objectives if one.name in {name for _, name in _PERCENTS}]
    top = max([highest, *(one.limit for one in limits if one.limit < highest * 3)])
    chart = _over_time(result, "Latency over time", top, short_duration)
    for number, (_, name) in enumerate(_PERCENTS):
        chart.line([(at, values[number]) for at, values in moments], name, name)
    for objective in limits:
        chart.mark_y(objective.limit, objective.written)
    chart.hover(
        Hover(at, f"{at:.1f} s", tuple((name, format_duration(v)) for (_, name), v in zip(_PERCENTS, values, strict=True)))
        for at, values in moments
    )
    return chart.render()


def _rate_over_time(result: RunResult) -> str:
    per_s = 1 / result.tally.slice_s
    moments = _moments(result)
    highest = max((max(slot.due, slot.answered) * per_s for _, slot in moments), default=0.0)
    chart = _over_time(result, "Requests per second", highest, short_number)
    chart.area([(at, slot.answered * per_s) for at, slot in moments], "rate", "answered")
    chart.line([(at, slot.due * per_s) for at, slot in moments], "offered", "due")
    chart.hover(
        Hover(at, f"{at:.1f} s", (("answered", f"{slot.answered * per_s:.1f}/s"), ("due", f"{slot.due * per_s:.1f}/s")))
        for at, slot in moments
    )
    return chart.render()


def _distribution(result: RunResult) -> str:
    latency = result.tally.latency
    low, high = latency.min_s * 0.95, max(latency.max_s * 1.05, latency.min_s * 1.5)
    ratio = (high / low) ** (1 / _BINS)
    counts = [0] * _BINS
    for value_s, count in latency.values_s():
        counts[min(_BINS - 1, max(0, int(math.log(value_s / low) / math.log(ratio))))] += count
    edges = [low * ratio**number for number in range(_BINS + 1)]
    chart = Chart(
        "Latency distribution",
        Scale.logarithmic(low, high, *Chart.x_range()),
        Scale.linear(max(counts) / latency.count, *Chart.y_range()),
        "latency, logarithmic",
        short_duration,
        lambda share: f"{share:.3g}" if share == 0 else f"{share * 100:g}%",
    )
    shares = [count / latency.count for count in counts]
    chart.bars(list(zip(edges, edges[1:], shares, strict=False)), "spread", "share of requests")
    for percent, name in _PERCENTS[::2]:
        chart.mark_x(latency.percentile_s(percent), name)
    chart.hover(
        Hover((left * right) ** 0.5, f"{short_duration(left)} – {short_duration(right)}", (("share", f"{share:.1%}"),))
        for left, right, share in zip(edges, edges[1:], shares, strict=False)
    )
    return chart.render()


def _percentiles(result: RunResult) -> str:
    """Every percentile up to the slowest request: x is 1 / (1 - quantile), so that each nine takes equal room."""
    latency = result.tally.latency
    most = max(latency.count, 10)
    xs = [most ** (number / _HDR_POINTS) for number in range(_HDR_POINTS + 1)]
    percents = [100 * (1 - 1 / x) for x in xs[:-1]] + [100.0]  # the slowest request ends the line
    points = list(zip(xs, latency.percentiles_s(percents), strict=True))
    nines = [(2.0, "50%"), (10.0, "90%"), (100.0, "99%"), (1e3, "99.9%"), (1e4, "99.99%"), (1e5, "99.999%")]
    names = {x: name for x, name in nines if x <= most}
    chart = Chart(
        "Latency by percentile",
        Scale.logarithmic(1.0, most, *Chart.x_range()),
        Scale.linear(latency.max_s, *Chart.y_range()),
        "share of requests that were at least as fast",
        lambda x: names[x],
        short_duration,
        x_ticks=list(names),
    )
    chart.line(points, "p90", "latency")
    chart.hover(Hover(x, f"{100 * (1 - 1 / x):.4g}%", (("latency", format_duration(y)),)) for x, y in points)
    return chart.render()


def _rate_against_latency(result: RunResult) -> str:
    per_s = 1 / result.tally.slice_s
    points = [(slot.due * per_s, slot.latency.percentiles_s((50, 99))) for _, slot in _moments(result) if slot.latency.count]
    p50s, p99s = [(rate, values[0]) for rate, values in points], [(rate, values[1]) for rate, values in points]
    chart = Chart(
        "Rate against latency",
        Scale.linear(max((rate for rate, _ in points), default=1.0), *Chart.x_range()),
        Scale.linear(max((value for _, value in p99s), default=1.0), *Chart.y_range()),
        "requests due per second, one dot per slice of time",
        short_number,
        short_duration,
    )
    chart.dots(p99s, "p99", "p99")
    chart.dots(p50s, "p50", "p50")
    return chart.render()


def _errors_over_time(result: RunResult) -> str:
    tally = result.tally
    moments = _moments(result)
    most = max((slot.errors for _, slot in moments), default=0)
    chart = _over_time(result, "Errors", max(most, 4), short_number)  # below 4 the ticks would be fractions
    if not most:
        chart.note("no request failed")
    half = tally.slice_s / 2
    chart.bars([(at - half, at + half, float(slot.errors)) for at, slot in moments], "bad", "failed requests a slice")
    chart.hover(Hover(at, f"{at:.1f} s", (("failed", f"{slot.errors} of {slot.due}"),)) for at, slot in moments)
    return chart.render()


def _batch_over_time(result: RunResult) -> str | None:
    known = [sample for sample in result.server if sample.rows_per_step is not None]
    if not known:
        return None
    rows = [(sample.at_s, sample.rows_per_step or 0.0) for sample in known if sample.at_s <= result.tally.duration_s]
    chart = _over_time(result, "Batch occupancy", max((y for _, y in rows), default=1.0), short_number)
    chart.area(rows, "batch", "rows decoded a step")
    chart.hover(
        Hover(
            sample.at_s,
            f"{sample.at_s:.1f} s",
            (
                ("rows per step", f"{sample.rows_per_step:.1f}"),
                ("of the largest", "–" if sample.occupancy is None else f"{sample.occupancy:.0%}"),
            ),
        )
        for sample in known
    )
    return chart.render()


def _queue_over_time(result: RunResult) -> str | None:
    points = [(sample.at_s, sample.queue_mean_s) for sample in result.server if sample.queue_mean_s is not None]
    known = [(at, value) for at, value in points if at <= result.tally.duration_s]
    if not known:
        return None
    chart = _over_time(result, "Queue time in the server", max(value for _, value in known), short_duration)
    chart.area(known, "queue", "mean wait for a place in the batch")
    chart.hover(Hover(at, f"{at:.1f} s", (("queue", format_duration(value)),)) for at, value in known)
    return chart.render()
