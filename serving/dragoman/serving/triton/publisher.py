"""Puts our numbers on Triton's metrics endpoint; runs in one of the stubs, for all of them."""

from __future__ import annotations

from typing import Any

from dragoman.serving.link.frames import Frame
from dragoman.serving.metrics import METRICS, RESTARTS, Series, read_changes
from dragoman.serving.triton.routes import RoutingTable

__all__ = ["Publisher"]


class Publisher:
    """Applies the changes an engine sends to Triton's metric families, which exist from the start."""

    def __init__(self, backend: Any) -> None:  # noqa: ANN401 - Triton's module, which exists inside its stub only
        self._series: dict[str, Series] = {series.name: series for metric in METRICS for series in metric.series}
        family = backend.MetricFamily
        kinds = {"counter": family.COUNTER, "gauge": family.GAUGE, "share": family.GAUGE}
        self._families = {
            series.name: family(name=series.name, description=series.help, kind=kinds[series.kind])
            for series in self._series.values()
        }
        self._metrics: dict[tuple[str, str, str], Any] = {}
        self._restarts: dict[str, int] = {}
        self._gauges: dict[tuple[str, str], dict[str, float]] = {}  # name and model -> engine -> what it is there

    def take(self, model: str, engine: str, frame: Frame) -> None:
        """Apply a METRICS frame of one of the engines that serve `model`."""
        for name, label, amount in read_changes(frame):
            if self._series[name].kind == "counter":
                self._apply(name, model, label, amount)
            else:
                self._gauges.setdefault((name, model), {})[engine] = amount
                self._gauge(name, model)

    def take_table(self, table: RoutingTable) -> None:
        """The supervisor counts restarts, and says which engines there are: those that are gone have no gauges."""
        for (name, model), gauges in self._gauges.items():
            for gone in gauges.keys() - set(table.sockets.get(model, ())):
                del gauges[gone]
            self._gauge(name, model)
        for what, count in table.restarts.items():
            self._apply(RESTARTS.name, "", what, count - self._restarts.get(what, 0))
            self._restarts[what] = count

    def close(self) -> None:
        """Let go of Triton's objects while Triton still listens: later it would bring the stub down. Children first."""
        self._metrics.clear()
        self._families.clear()

    def _gauge(self, name: str, model: str) -> None:
        """Of several engines the sum; of shares the mean."""
        gauges = self._gauges[name, model]
        parts = max(len(gauges), 1) if self._series[name].kind == "share" else 1
        self._apply(name, model, "", sum(gauges.values()) / parts)

    def _apply(self, name: str, model: str, label: str, amount: float) -> None:
        series = self._series[name]
        metric = self._metrics.get((name, model, label))
        if metric is None:
            labels = {"model": model} if model else {}
            if series.label is not None:
                labels[series.label] = label
            metric = self._metrics[name, model, label] = self._families[name].Metric(labels=labels)
        if series.kind == "counter":
            metric.increment(amount)
        else:
            metric.set(amount)
