from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from fake_triton import STATUS, ScriptedTriton

from dragoman.cli import main
from dragoman.client.prometheus import Scrape, beside, metrics_url_of
from dragoman.errors import DragomanError
from dragoman.wire import MODELS, WIRE_VERSION

METRICS = """\
# HELP dragoman_texts_total Texts translated
# TYPE dragoman_texts_total counter
dragoman_texts_total{{model="en-de"}} {texts}
dragoman_requests_total{{model="en-de",outcome="ok"}} {texts}
dragoman_requests_total{{model="en-de",outcome="invalid"}} 3
dragoman_target_tokens_total{{model="en-de"}} {tokens}
dragoman_running_requests{{model="en-de"}} 5
dragoman_queued_requests{{model="en-de"}} 2
dragoman_batch_occupancy{{model="en-de"}} 0.25
nv_gpu_utilization NaN
"""


@pytest.fixture
def metrics() -> Iterator[str]:
    """An endpoint whose counters grow by 10 texts and 100 tokens a scrape."""
    scrapes = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scrapes.append(self.path)
            body = METRICS.format(texts=10 * len(scrapes), tokens=100 * len(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_shows_bundles_models_versions_and_rates(
    triton: ScriptedTriton, metrics: str, capsys: pytest.CaptureFixture[str]
) -> None:
    triton.status["metrics"] = metrics
    assert main(["status", "--server", triton.url, "--watch", "0.5", "--json"]) == 0
    (server,) = json.loads(capsys.readouterr().out)
    assert (server["ready"], server["triton"], server["dragoman"]) == (True, "triton 2.51.0", "0.2.0")
    assert [model["name"] for model in server["models"]] == [model.name for model in MODELS]
    assert server["models"][0]["versions"] == ["1"]
    assert server["bundles"] == [{**bundle, "shortlists": {}} for bundle in triton.status["bundles"]]
    (activity,) = server["activity"]
    assert (activity["bundle"], activity["running"], activity["queued"], activity["occupancy"]) == ("en-de", 5, 2, 0.25)
    assert 5 < activity["texts"] <= 20
    assert activity["target_tokens"] == pytest.approx(10 * activity["texts"])
    assert activity["failures"] == 0


def test_it_prints_a_line_for_each_bundle(triton: ScriptedTriton, metrics: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--server", triton.url, "--metrics", metrics, "--watch", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert f"{triton.url}\tready\ttriton 2.51.0\t0.2.0\t5 of 5 ready" in shown
    assert f"{triton.url}\ten-de\ttatoeba-en-de\t7\ten → de, nds\tint8\t60 M" in shown
    assert f"{triton.url}\ten-de\t" in shown.partition("req/s")[2]


def test_many_languages_are_shortened(triton: ScriptedTriton, metrics: str, capsys: pytest.CaptureFixture[str]) -> None:
    many = [f"l{number}" for number in range(100)]
    triton.status["bundles"] = [{**STATUS["bundles"][0], "target_languages": many}]
    main(["status", "--server", triton.url, "--metrics", metrics, "--watch", "0.1"])
    assert "en → l0, l1, l2, l3 +96" in capsys.readouterr().out


@pytest.mark.parametrize("status", [{"wire_version": 99}, {"wire_version": WIRE_VERSION, "bundles": [{"name": "x"}]}])
def test_the_error_for_an_unreadable_status_names_differing_releases(
    triton: ScriptedTriton, status: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    triton.status = status
    assert main(["status", "--server", triton.url]) == 1
    assert "same dragoman release" in capsys.readouterr().err


def test_a_server_without_metrics_is_shown_all_the_same(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--server", triton.url, "--metrics", "http://127.0.0.1:9/metrics"]) == 0
    out, err = capsys.readouterr()
    assert "en-de" in out
    assert "--metrics" in err


def test_a_server_that_is_down_is_exit_code_1(triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]) -> None:
    triton.stop()
    assert main(["status", "--server", triton.url]) == 1
    out, err = capsys.readouterr()
    assert "not ready" in out
    assert "dragoman serve" in err


def test_a_server_that_is_not_ready_is_exit_code_1(triton: ScriptedTriton, metrics: str) -> None:
    triton.ready = False
    assert main(["status", "--server", triton.url, "--metrics", metrics, "--watch", "0.1"]) == 1


def test_of_two_servers_both_are_shown(
    triton: ScriptedTriton, other_triton: ScriptedTriton, capsys: pytest.CaptureFixture[str]
) -> None:
    other_triton.stop()
    assert main(["status", "--server", f"{triton.url},{other_triton.url}", "--json"]) == 1
    assert [server["ready"] for server in json.loads(capsys.readouterr().out)] == [True, False]


@pytest.mark.parametrize(
    "flags", [["--server", "a:1,b:2", "--metrics", "http://a"], ["--server", ""], ["--metrics", "ftp://a"]]
)
def test_impossible_flags_are_a_usage_error(triton: ScriptedTriton, flags: list[str]) -> None:
    assert main(["status", "--server", triton.url, *flags]) == 2


def test_a_counter_that_began_again_is_counted_from_zero() -> None:
    before, after = Scrape.parse("x_total 90", 0.0), Scrape.parse("x_total 10", 2.0)
    assert after.rate(before, "x_total") == 5.0


def test_labels_with_escapes_are_read() -> None:
    scrape = Scrape.parse('x{model="a\\"b\\\\c\\nd",le="+Inf"} 1e3', 0.0)
    assert scrape.label_values("x", "model") == ['a"b\\c\nd']
    assert scrape.total("x") == 1000


def test_comments_and_timestamps_are_not_values() -> None:
    scrape = Scrape.parse('# x 7\nx{a="1"} 2.5 1700000000\nx{a="2"} +Inf\n', 0.0)
    assert scrape.values_of("x") == [2.5, float("inf")]
    assert scrape.values_of("x", a="1") == [2.5]
    assert scrape.values_of("y") == []


@pytest.mark.parametrize("text", ["", "garbage", "{} 1", "x notanumber"])
def test_what_is_no_metric_is_left_out(text: str) -> None:
    assert Scrape.parse(text, 0.0).values == {}


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("host:8001", "http://host:8002/metrics"),
        ("dns:///name:8001", "http://name:8002/metrics"),
        ("dns://10.0.0.2:53/name:8001", "http://name:8002/metrics"),
    ],
)
def test_metrics_are_looked_for_beside_the_server(target: str, url: str) -> None:
    assert metrics_url_of(target) == url


@pytest.mark.parametrize(
    ("named", "target", "url"),
    [
        ("http://127.0.0.1:9002/metrics", "10.0.0.7:8001", "http://10.0.0.7:9002/metrics"),
        ("http://0.0.0.0:9002/metrics", "dns:///name:8001", "http://name:9002/metrics"),
        ("http://metrics.example/m", "10.0.0.7:8001", "http://metrics.example/m"),
    ],
)
def test_a_loopback_endpoint_is_looked_for_on_the_host_that_was_dialled(named: str, target: str, url: str) -> None:
    assert beside(named, target) == url


def test_errors_of_the_metrics_are_of_the_tree() -> None:
    from dragoman.client.prometheus import scrape

    with pytest.raises(DragomanError):
        scrape("http://127.0.0.1:9/metrics")
