import pytest
from metric_frames import read_changes

from dragoman.serving.metrics import (
    METRICS,
    QUEUE_SECONDS,
    QUEUED,
    REQUESTS,
    STEPS,
    Recorder,
    changes_frame,
    series_frame,
)


@pytest.fixture
def recorder() -> Recorder:
    """One that has made its first report."""
    made = Recorder()
    made.take_changes()
    return made


def test_the_first_report_puts_every_plain_counter_at_zero() -> None:
    first = Recorder().take_changes()
    plain = [metric.name for metric in METRICS if metric.kind == "counter" and metric.label is None]
    assert first == [(name, "", 0.0) for name in plain]
    assert "dragoman_refusals_total" in plain


def test_a_counter_reports_what_it_grew_by_since_the_last_report(recorder: Recorder) -> None:
    recorder.count(REQUESTS, label="ok")
    recorder.count(REQUESTS, label="ok")
    assert recorder.take_changes() == [("dragoman_requests_total", "ok", 2)]
    assert recorder.take_changes() == []


def test_nothing_is_reported_for_a_growth_of_nothing(recorder: Recorder) -> None:
    recorder.count(STEPS, 0)
    assert recorder.take_changes() == []


def test_a_gauge_is_reported_when_it_changes_and_only_then(recorder: Recorder) -> None:
    recorder.set(QUEUED, 3)
    assert recorder.take_changes() == [("dragoman_queued_requests", "", 3)]
    recorder.set(QUEUED, 3)
    assert recorder.take_changes() == []


def test_an_observation_counts_in_every_bucket_that_holds_it(recorder: Recorder) -> None:
    recorder.observe(QUEUE_SECONDS, 0.3)
    changes = {(name, label): amount for name, label, amount in recorder.take_changes()}
    assert ("dragoman_queue_seconds_bucket", "0.25") not in changes
    assert [changes["dragoman_queue_seconds_bucket", le] for le in ("0.5", "1", "10", "+Inf")] == [1, 1, 1, 1]
    assert changes["dragoman_queue_seconds_count", ""] == 1
    assert changes["dragoman_queue_seconds_sum", ""] == 0.3


def test_an_observation_on_a_bound_belongs_to_it(recorder: Recorder) -> None:
    recorder.observe(QUEUE_SECONDS, 0.5)
    assert ("dragoman_queue_seconds_bucket", "0.5", 1) in recorder.take_changes()


def test_every_series_has_one_definition() -> None:
    names = [series.name for metric in METRICS for series in metric.series]
    assert len(names) == len(set(names))


def test_metric_changes_are_read_as_they_were_written() -> None:
    changes = [(REQUESTS.name, "ok", 2.0), (STEPS.name, "", 0.25)]
    assert read_changes(changes_frame(changes)) == changes


def test_the_publisher_receives_every_series() -> None:
    parts = series_frame().parts
    expected = [series for metric in METRICS for series in metric.series]
    assert [name.decode() for name in parts[::4]] == [series.name for series in expected]
    assert set(parts[1::4]) <= {b"counter", b"gauge", b"share"}
