from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.loadtest.client_use import ClientUse, MachineClock
from dragoman.loadtest.scraper import Scraper, ServerSample

SCRAPE = """\
# HELP dragoman_queue_seconds_sum From arrival to the running batch
# TYPE dragoman_queue_seconds_sum counter
dragoman_queue_seconds_sum{{model="en-de"}} {queue_sum}
dragoman_queue_seconds_count{{model="en-de"}} {count}
dragoman_steps_total{{model="en-de"}} {steps}
dragoman_step_rows_total{{model="en-de"}} {rows}
dragoman_batch_occupancy{{model="en-de"}} 0.25
dragoman_batch_occupancy{{model="de-en"}} 0.5
dragoman_queued_requests{{model="en-de"}} 3
dragoman_calls_at_once{{model="en-de"}} 2
"""


class _Metrics(http.server.BaseHTTPRequestHandler):
    scrapes = 0

    def do_GET(self) -> None:
        number = _Metrics.scrapes = _Metrics.scrapes + 1
        text = "nv_gpu_utilization 0.5\n" if self.path == "/other" else SCRAPE
        body = text.format(queue_sum=number * 3.0, count=number * 30, steps=number * 10, rows=number * 80).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def metrics_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Metrics) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


def _first_sample(scraper: Scraper) -> ServerSample:
    began = time.monotonic()
    with scraper:
        while not (samples := scraper.samples(began)):
            assert time.monotonic() < began + 120
            time.sleep(0.02)
    return samples[0]


def test_samples_are_the_differences_of_two_scrapes(metrics_url: str) -> None:
    scraper = Scraper(metrics_url)
    sample = _first_sample(scraper)
    assert sample.queue_mean_s == pytest.approx(0.1)
    assert sample.rows_per_step == pytest.approx(8)
    assert sample.occupancy == 0.5
    assert sample.queued == 3
    assert sample.calls_at_once == 2
    assert sample.at_s > 0
    assert scraper.problem is None


def test_a_server_with_other_metrics_is_not_reported_idle(metrics_url: str) -> None:
    sample = _first_sample(Scraper(metrics_url.replace("/metrics", "/other")))
    assert (sample.queue_mean_s, sample.rows_per_step, sample.occupancy, sample.queued, sample.steps) == (None,) * 5


def test_metrics_that_can_not_be_read_are_a_remark_not_a_failure() -> None:
    with Scraper("http://127.0.0.1:9/metrics") as scraper:
        deadline = time.monotonic() + 120
        while scraper.problem is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert scraper.samples(0.0) == []
    assert "127.0.0.1:9" in scraper.problem


def test_metrics_come_over_http_only() -> None:
    with pytest.raises(UsageError, match="http"):
        Scraper("file:///etc/passwd")


def test_a_client_that_kept_pace_is_no_limit() -> None:
    assert ClientUse((0.4, 0.5), 0.7, 0.0003, 0.004, 0.1).limits == []
    assert ClientUse((0.4,), 0.7, 0.001, 0.02, 0.3).limits == []  # 20 ms late means little to 300 ms


@pytest.mark.parametrize(
    ("use", "sign"),
    [
        (ClientUse((0.2, 0.97), 0.6, 0.0003, 0.001, 0.1), "97%"),
        (ClientUse((0.2,), 0.6, 0.001, 0.02, 0.1), "20.0 ms late"),
    ],
)
def test_a_client_that_was_the_limit_is_reported(use: ClientUse, sign: str) -> None:
    assert len(use.limits) == 1
    assert sign in use.limits[0]


def test_a_full_machine_is_a_caution() -> None:
    assert len(ClientUse((0.2,), 0.99, 0.0003, 0.001, 0.1).cautions) == 1
    assert ClientUse((0.2,), None, 0.0003, 0.001, 0.1).cautions == []


def test_machine_load_is_read_from_proc_stat(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n")
    clock = MachineClock(stat)
    stat.write_text("cpu  160 0 70 810 60 0 0 0 0 0\n")  # 80 of 100 ticks busy
    assert clock.busy_share() == pytest.approx(0.8)
    assert MachineClock(tmp_path / "nowhere").busy_share() is None
