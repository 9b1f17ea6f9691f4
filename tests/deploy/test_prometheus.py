"""A real Prometheus scrapes a real server with our configuration, and answers every query of the dashboard."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_files import ROOT

from dragoman.serving.metrics import METRICS
from dragoman.serving.supervisor.ports import free_port
from served import Server, eventually

RULES = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/dragoman.json").read_text(encoding="utf-8"))
NEEDS_PROMETHEUS = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus is not installed: apt install prometheus",
)


def dashboard_queries() -> list[str]:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


class Prometheus:
    """One that runs, asked over its HTTP interface."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=600) as page:  # noqa: S310 - our own loopback address
            return json.load(page)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result

    def is_up(self) -> bool:
        try:
            return any(target["health"] == "up" for target in self.get("targets")["activeTargets"])
        except OSError:
            return False


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Our configuration; only the addresses of the servers and the time between scrapes are this machine's."""
    directory = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [urllib.parse.urlsplit(server.metrics_url).netloc]}]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    shutil.copy(RULES, directory)
    port = free_port("127.0.0.1")
    command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    with (directory / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            running = Prometheus(port)
            eventually(lambda: process.poll() is not None or running.is_up(), timeout_s=60)
            assert process.poll() is None, (directory / "log").read_text(encoding="utf-8")
            yield running
        finally:
            process.terminate()
            process.wait(120)


@NEEDS_PROMETHEUS
def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    command = ["promtool", "check", "config", "prometheus.yml"]
    checked = subprocess.run(command, cwd=RULES.parent, capture_output=True, text=True, check=False, timeout=600)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@NEEDS_PROMETHEUS
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    tests = Path(__file__).with_name("alerts_test.yml")
    checked = subprocess.run(
        ["promtool", "test", "rules", str(tests)], capture_output=True, text=True, check=False, timeout=600
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_description_and_a_severity() -> None:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    assert len(alerts) >= 7
    for alert in alerts:
        assert alert["labels"]["severity"] in ("page", "warn")
        assert alert["annotations"].keys() == {"summary", "description"}


def test_rules_and_dashboard_use_only_metrics_that_the_server_has() -> None:
    known = {series.name for metric in METRICS for series in metric.series}
    asked = set(re.findall(r"\bdragoman_\w+", " ".join([*dashboard_queries(), RULES.read_text(encoding="utf-8")])))
    assert asked <= known
    assert len(asked) > 12


@NEEDS_PROMETHEUS
def test_every_query_of_the_dashboard_is_answered(prometheus: Prometheus, server: Server) -> None:
    caller = server.caller()
    expected = [query.replace("$model", ".*") for query in dashboard_queries()]
    try:

        def all_answered() -> bool:
            caller.translate(["Where is the station?"], cache=False)
            caller.translate(["It rains."])
            return all(answered(prometheus, query) for query in expected)

        eventually(all_answered, timeout_s=45)
    finally:
        caller.close()


@NEEDS_PROMETHEUS
def test_the_autoscalers_metrics_are_answered(prometheus: Prometheus, server: Server) -> None:
    """The adapter fills in the labels of a cluster; here they are those of the scrape."""
    adapter = yaml.safe_load((ROOT / "deploy/prometheus/adapter.yml").read_text(encoding="utf-8"))
    queries = [
        rule["metricsQuery"].replace("<<.GroupBy>>", "instance").replace("<<.LabelMatchers>>", 'job="dragoman"')
        for rule in adapter["rules"]["custom"]
    ]
    caller = server.caller()
    try:

        def all_numbers() -> bool:
            caller.translate(["Where is the station?"], cache=False)
            return all(math.isfinite(float(value["value"][1])) for query in queries for value in one_each(prometheus, query))

        eventually(all_numbers, timeout_s=45)
    finally:
        caller.close()


def one_each(prometheus: Prometheus, query: str) -> list[dict[str, Any]]:
    """A value for the one server; NaN while there is none."""
    return prometheus.query(query) or [{"value": [0, "nan"]}]


def answered(prometheus: Prometheus, query: str) -> bool:
    """Every panel has data in a server at work; there may be no restart to show."""
    return bool(prometheus.query(query)) or "restarts" in query


@NEEDS_PROMETHEUS
def test_prometheus_and_the_server_count_the_same(prometheus: Prometheus, server: Server) -> None:
    def same() -> bool:
        (counted,) = prometheus.query("sum(dragoman_texts_total)")
        return float(counted["value"][1]) == sum(
            value for name, value in server.metrics().items() if name.startswith("dragoman_texts_total")
        )

    eventually(same)


@NEEDS_PROMETHEUS
def test_a_healthy_server_raises_no_alarm(prometheus: Prometheus) -> None:
    rules = prometheus.get("rules")["groups"][0]["rules"]
    assert {rule["name"]: rule["health"] for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []
