"""The load test on the real server: its figures are the server's, and load does not change the answers."""

from __future__ import annotations

import time

import pytest

from dragoman.client.addresses import parse_addresses
from dragoman.loadtest.arrivals import shape_named
from dragoman.loadtest.plan import ClosedLoop, OpenLoop, Plan
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.run import run
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.workload import Item, Workload
from served import Server, eventually

PAIRS = Workload(
    "pairs",
    (
        Item("Where is the station?", ("Wo ist der Bahnhof?",)),
        Item("I have never been to Berlin.", ("Ich war noch nie in Berlin.",)),
        Item("She bought a new car last week.", ("Sie hat letzte Woche ein neues Auto gekauft.",)),
        Item("Good morning.", ("Guten Morgen.",)),
        Item("He works in a hospital and his wife teaches at a school.", ("Er arbeitet in einem Krankenhaus.",)),
        Item("We don't have much time.", ("Wir haben nicht viel Zeit.",)),
        Item("How old are you?", ("Wie alt bist du?",)),
        Item("The children are playing in the garden.", ("Die Kinder spielen im Garten.",)),
    ),
)


def loaded(server: Server, load: OpenLoop | ClosedLoop, stream: bool = False) -> RunResult:
    target, settings = Target(parse_addresses(server.grpc)), RequestSettings(stream=stream)
    return run(Plan(target, PAIRS, load, settings, warm_up_s=0.5), server.metrics_url)


@pytest.fixture(scope="module")
def alone(server: Server) -> RunResult:
    return loaded(server, ClosedLoop(1, 2.5))


@pytest.fixture(scope="module")
def crowded(server: Server) -> RunResult:
    return loaded(server, ClosedLoop(16, 5))


def test_load_does_not_change_the_answers(alone: RunResult, crowded: RunResult) -> None:
    assert not alone.tally.errors
    assert not crowded.tally.errors
    assert crowded.quality.items == len(PAIRS)
    assert crowded.quality.changing_items == 0
    assert alone.quality.items == len(PAIRS)
    assert crowded.quality.bleu == alone.quality.bleu
    assert crowded.quality.bleu is not None
    assert crowded.quality.bleu > 15


def test_the_report_has_the_mean_batch_size_of_the_server(alone: RunResult, crowded: RunResult) -> None:
    def rows(result: RunResult) -> float:
        known = [sample.rows_per_step for sample in result.server if sample.rows_per_step is not None]
        return max(known)

    assert rows(crowded) > 2 * rows(alone)
    assert any(sample.queue_mean_s is not None for sample in crowded.server)
    assert crowded.figures.target_token_rate > 0
    assert crowded.figures.source_token_rate > 0
    assert crowded.figures.queue is not None


def settled_count(server: Server) -> float:
    """How many texts the server has translated; it publishes once a second, so the number must stand for longer."""
    seen: list[tuple[float, float]] = []

    def stands() -> bool:
        counted = sum(value for name, value in server.metrics().items() if name.startswith("dragoman_texts_total"))
        if not seen or seen[-1][1] != counted:
            seen.append((time.monotonic(), counted))
        return time.monotonic() - seen[-1][0] > 2.5

    eventually(stands)
    return seen[-1][1]


def test_the_server_counts_as_many_answers_as_the_load_test(server: Server) -> None:
    before = settled_count(server)
    result = loaded(server, OpenLoop(shape_named("constant", 8, 2)))
    warm_up, first_of_the_worker = 4, 1
    assert result.figures.requests == 16
    assert settled_count(server) - before == 16 + warm_up + first_of_the_worker


def test_streams_begin_before_they_end(server: Server) -> None:
    result = loaded(server, OpenLoop(shape_named("poisson", 6, 3)), stream=True)
    assert not result.tally.errors
    assert result.figures.first_token is not None
    assert result.figures.per_token is not None
    assert 0 < result.figures.first_token.p50 < result.figures.latency.p50
    assert result.quality.changing_items == 0
    assert result.figures.target_token_rate > 0
