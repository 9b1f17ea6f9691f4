"""Whole runs with real worker processes against a real gRPC server whose delays are known."""

from __future__ import annotations

import multiprocessing
import signal
import socket
import time

import grpc
import pytest
from scripted_triton import Script, serving

from calm import on_a_calm_machine
from dragoman.client.addresses import parse_addresses
from dragoman.errors import DragomanError, RequestError
from dragoman.loadtest.arrivals import shape_named
from dragoman.loadtest.plan import ClosedLoop, OpenLoop, Plan
from dragoman.loadtest.remarks import remarks_on
from dragoman.loadtest.run import Snapshot, run
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.workload import Item, Workload

WORKLOAD = Workload("words", tuple(Item(f"word number {number}") for number in range(20)))
REFERENCED = Workload("words", tuple(Item(f"a b c d e {n}", (f"A B C D E {n}",)) for n in range(20)))


def plan(address: str, load: OpenLoop | ClosedLoop, **changes: object) -> Plan:
    settings: dict[str, object] = {"warm_up_s": 0.3, "workload": WORKLOAD, **changes}
    return Plan(Target(parse_addresses(address)), load=load, **settings)  # type: ignore[arg-type]


def constant(rate: float, duration_s: float) -> OpenLoop:
    return OpenLoop(shape_named("constant", rate, duration_s))


@on_a_calm_machine
def test_percentiles_are_those_of_the_server() -> None:
    script = Script(delay_s=lambda number: 1.2 if number % 20 == 7 else 0.2)  # one in twenty: p90 fast, p99 slow
    with serving(script) as address:
        result = run(plan(address, constant(60, 3), workers=2))
    latency = result.figures.latency
    assert 0.2 <= latency.p50 < 0.5  # a busy machine adds to all of them
    assert 0.2 <= latency.p90 < 0.8
    assert 1.2 <= latency.p99 < 1.8
    assert result.figures.requests == 180
    assert result.figures.answered_rate == pytest.approx(60, rel=0.05)
    assert result.figures.error_share == 0


def stalling(address: str, script: Script, load: OpenLoop | ClosedLoop) -> list[float]:
    """p50, p75 and max of three seconds during one of which the server stands still."""

    def stall(snapshot: Snapshot) -> None:
        if snapshot.elapsed_s > 1 and not script.stalls_until:
            script.stalls_until = time.monotonic() + 1

    tally = run(plan(address, load), observe=stall).tally
    script.stalls_until = 0.0
    return [tally.latency.percentile_s(percent) for percent in (50, 75, 100)]


@on_a_calm_machine
def test_a_server_that_stands_still_shows_in_an_open_loop_and_hides_in_a_closed_one() -> None:
    script = Script(delay_s=lambda _: 0.01)
    with serving(script) as address:
        open_p50, open_p75, open_max = stalling(address, script, constant(40, 3))
        closed_p50, closed_p75, closed_max = stalling(address, script, ClosedLoop(1, 3))
    assert open_max > 0.7
    assert closed_max > 0.7  # one user sees it once
    assert closed_p50 < closed_p75 < 0.1  # and forgets it among the many fast answers: coordinated omission
    assert open_p50 < 0.1
    assert 0.1 < open_p75 < 0.6  # a third of all requests were due while it stood still, evenly: p75 is ~0.24 s


def test_every_arrival_is_sent_once_whatever_the_number_of_workers() -> None:
    script = Script()
    with serving(script) as address:
        result = run(plan(address, OpenLoop(shape_named("spike", 40, 2)), workers=2, warm_up_s=0.5))
    warm_up, first_of_each_worker = 5, 2
    assert result.figures.requests == 32
    assert len(script.received) == 32 + warm_up + first_of_each_worker


@on_a_calm_machine
def test_several_servers_share_the_load() -> None:
    one, other = Script(), Script()
    with serving(one) as first, serving(other) as second:
        result = run(plan(f"{first},{second}", constant(40, 1), warm_up_s=0.0))
    assert result.figures.requests == 40
    assert not result.tally.errors
    assert [len(one.received), len(other.received)] == pytest.approx([20, 20], abs=1)


@on_a_calm_machine
def test_an_open_loop_keeps_no_more_open_than_it_may_and_forgets_none() -> None:
    script = Script(delay_s=lambda _: 0.5)
    with serving(script) as address:
        result = run(plan(address, constant(40, 1), max_in_flight=8, workers=2))
    assert script.most_at_once == 8
    assert result.figures.requests == 40
    assert result.tally.latency.count == 40
    assert result.figures.latency.max > 1  # 40 requests, 8 at a time, half a second each: from when they were due
    assert result.tally.held_back > 20
    assert any("left late" in remark for remark in remarks_on(result))


@on_a_calm_machine
def test_a_server_that_is_far_behind_does_not_make_the_client_the_limit() -> None:
    with serving(Script(delay_s=lambda _: 0.25)) as address:
        result = run(plan(address, constant(40, 1), max_in_flight=4))
    assert result.figures.latency.max > 1  # 40 requests, 4 at a time, a quarter of a second each
    assert result.client.lag_p99_s < 0.1


@on_a_calm_machine
def test_an_open_loop_with_room_holds_nothing_back() -> None:
    with serving(Script(delay_s=lambda _: 0.1)) as address:
        result = run(plan(address, constant(40, 1)))
    assert result.tally.held_back == 0
    assert result.client.lag_p99_s < 0.1


@on_a_calm_machine
def test_a_closed_loop_keeps_exactly_its_number_in_flight() -> None:
    script = Script(delay_s=lambda _: 0.05)
    with serving(script) as address:
        result = run(plan(address, ClosedLoop(6, 2), workers=2))
    assert script.most_at_once == 6
    assert result.figures.answered_rate == pytest.approx(6 / result.figures.latency.mean, rel=0.1)


@on_a_calm_machine
def test_streams_are_timed_token_by_token() -> None:
    script = Script(delay_s=lambda _: 0.05, tokens=3)
    with serving(script) as address:
        result = run(plan(address, constant(20, 1), settings=RequestSettings(stream=True)))
    figures = result.figures
    assert figures.first_token is not None
    assert figures.per_token is not None
    assert 0.05 <= figures.first_token.p50 < 0.14
    assert 0.05 <= figures.per_token.p50 < 0.14
    assert 0.15 <= figures.latency.p50 < 0.3
    assert figures.target_token_rate == pytest.approx(60, rel=0.15)


def test_errors_are_reported_by_kind_and_leave_the_others_alone() -> None:
    def error(number: int) -> tuple[grpc.StatusCode, str] | None:
        kinds = {
            1: (grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=5: full"),
            2: (grpc.StatusCode.INTERNAL, "boom"),
        }
        return kinds.get(number % 4)

    with serving(Script(error=error)) as address:
        result = run(plan(address, constant(40, 1)))
    assert set(result.tally.errors) == {"Overloaded", "ServerError"}
    assert result.tally.errors["Overloaded"] == pytest.approx(10, abs=1)
    assert result.figures.error_share == pytest.approx(0.5, abs=0.05)
    assert result.tally.examples["Overloaded"] == "full"
    assert result.tally.latency.count + sum(result.tally.errors.values()) == 40


def test_errors_in_a_stream_are_reported_by_kind() -> None:
    overloaded = (grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=5: full")
    with serving(Script(error=lambda number: overloaded if number % 2 else None)) as address:
        result = run(plan(address, constant(20, 1), settings=RequestSettings(stream=True)))
    assert result.tally.errors == {"Overloaded": 10}


def test_a_request_that_outlives_its_timeout_is_an_error() -> None:
    script = Script(delay_s=lambda number: 0.0 if number == 0 else 5.0)
    with serving(script) as address:
        result = run(plan(address, constant(10, 0.5), settings=RequestSettings(timeout_s=0.2)))
    assert result.tally.errors == {"DeadlineExceeded": 5}


def test_load_bypasses_the_response_cache_and_carries_its_options() -> None:
    script = Script()
    with serving(script) as address:
        run(plan(address, constant(10, 0.5), settings=RequestSettings(beam_size=4, model="en-de", target_language="de")))
    assert {(asked["cache"], asked["beam_size"], asked["MODEL"], asked["target_language"]) for asked in script.options} == {
        (False, 4, "en-de", "de")
    }


def test_bleu_is_that_of_the_answers_and_changing_answers_are_noticed() -> None:
    with serving(Script()) as address:
        faithful = run(plan(address, constant(60, 1), workload=REFERENCED))
    with serving(Script(translate=lambda text, number: f"{text.upper()}{number}" if " 7" in text else "X")) as address:
        wandering = run(plan(address, constant(60, 1), workload=REFERENCED))
    assert faithful.quality.bleu == pytest.approx(100)
    assert (faithful.quality.items, faithful.quality.changing_items) == (20, 0)
    assert wandering.quality.bleu is not None
    assert wandering.quality.bleu < 50
    assert wandering.quality.changing_items == 1


@on_a_calm_machine
def test_ctrl_c_ends_the_run_and_keeps_what_was_measured() -> None:
    def interrupt(snapshot: Snapshot) -> None:
        if snapshot.elapsed_s > 1 and not interrupted:
            interrupted.append(snapshot.elapsed_s)
            signal.raise_signal(signal.SIGINT)

    interrupted: list[float] = []
    with serving(Script(delay_s=lambda number: 60.0 if number == 3 else 0.02)) as address:
        result = run(plan(address, constant(30, 60), warm_up_s=0.0), observe=interrupt)
    assert result.tally.duration_s < 60
    assert result.info.interrupted
    assert result.tally.duration_s == pytest.approx(interrupted[0], abs=0.5)
    assert result.figures.answered_rate == pytest.approx(30, rel=0.2)
    assert result.tally.errors == {"Unfinished": 1}  # the one that was still waited for is not forgotten
    assert not multiprocessing.active_children()


def test_ctrl_c_in_the_warm_up_has_nothing_to_report() -> None:
    with serving(Script()) as address, pytest.raises(KeyboardInterrupt):
        run(plan(address, constant(30, 60), warm_up_s=30.0), observe=lambda _: signal.raise_signal(signal.SIGINT))
    assert not multiprocessing.active_children()


def test_a_server_that_is_down_is_reported_before_any_load() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(RequestError, match=address):
        run(plan(address, constant(10, 1)))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("untold", ["source_tokens", "target_tokens", "queue_ms"])
def test_an_answer_without_its_counts_is_no_answer(untold: str) -> None:
    with serving(Script(untold=(untold,))) as address, pytest.raises(RequestError, match=untold):
        run(plan(address, constant(10, 1)))


def test_a_worker_that_dies_ends_the_run_with_an_error() -> None:
    def kill(snapshot: Snapshot) -> None:
        if snapshot.elapsed_s > 0.2:
            multiprocessing.active_children()[0].kill()

    with serving(Script()) as address, pytest.raises(DragomanError, match="worker died"):
        run(plan(address, constant(20, 30), workers=2), observe=kill)
    assert not multiprocessing.active_children()
