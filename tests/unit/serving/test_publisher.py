"""Numbers of several engines on one page."""

from __future__ import annotations

from typing import Any

from dragoman.serving.metrics import OCCUPANCY, REQUESTS, RUNNING, changes_frame
from dragoman.serving.triton.publisher import Publisher
from dragoman.serving.triton.routes import RoutingTable


class Page:
    """Triton's metrics module, as far as the publisher uses it."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, tuple[str, ...]], float] = {}
        page = self

        class Metric:
            def __init__(self, name: str, labels: dict[str, str]) -> None:
                self.key = (name, tuple(labels.values()))

            def set(self, value: float) -> None:
                page.values[self.key] = value

            def increment(self, value: float) -> None:
                page.values[self.key] = page.values.get(self.key, 0.0) + value

        class MetricFamily:
            COUNTER, GAUGE = "counter", "gauge"

            def __init__(self, name: str, description: str, kind: str) -> None:
                self.name = name

            def Metric(self, labels: dict[str, str]) -> Metric:  # noqa: N802 - Triton's name
                return Metric(self.name, labels)

        self.MetricFamily: Any = MetricFamily


def test_counters_and_gauges_of_several_engines_add_up_and_shares_do_not() -> None:
    page = Page()
    publisher = Publisher(page)
    for engine, running, share in (("a.sock", 3, 0.5), ("b.sock", 1, 0.25)):
        changes = [(REQUESTS.name, "ok", 2), (RUNNING.name, "", running), (OCCUPANCY.name, "", share)]
        publisher.take("en-de", engine, changes_frame(changes))
    assert page.values[REQUESTS.name, ("en-de", "ok")] == 4
    assert page.values[RUNNING.name, ("en-de",)] == 4
    assert page.values[OCCUPANCY.name, ("en-de",)] == 0.375


def test_an_engine_that_is_gone_has_nothing_running() -> None:
    page = Page()
    publisher = Publisher(page)
    for engine in ("a.sock", "b.sock"):
        publisher.take("en-de", engine, changes_frame([(RUNNING.name, "", 2)]))
    publisher.take_table(RoutingTable(bundles=("en-de",), sockets={"en-de": ("b.sock",)}))
    assert page.values[RUNNING.name, ("en-de",)] == 2
    publisher.take_table(RoutingTable(bundles=("en-de",)))
    assert page.values[RUNNING.name, ("en-de",)] == 0
