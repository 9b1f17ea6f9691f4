"""An expensive request does not delay small ones: their tokens and answers keep coming."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from calm import Lateness
from hostile.deaths import Deaths
from hostile.expensive import Expensive, expensive
from hostile.neighbours import Neighbours
from hostile.report import Row
from hostile.rounds import measured
from served import Caller, Server

NEXT_TOKEN_MS, ANSWER_MS = 1000, 3000
"""The goal is 50 ms on a machine with nothing else to do (`make hostile` reports it). Tests share theirs with compilers and
other servers, where a core is waited for; what these bounds catch are stalls of seconds, which come at every try."""
TRIES, ATTEMPTS = 3, 9
LATE_S = 0.2
"""Of attempts that fail only those count during which a thread of ours that slept was woken sooner than so late."""


@dataclass(frozen=True)
class SharedServer:
    """A server, its callers with small requests, and one with expensive requests."""

    caller: Caller
    neighbours: Neighbours
    deaths: Deaths


@pytest.fixture(scope="module")
def shared(reference_bundle: Path) -> Iterator[SharedServer]:
    with (
        Server.start([f"en-de={reference_bundle}"]) as server,
        Deaths(server) as deaths,
        Neighbours(server.grpc) as neighbours,
    ):
        caller = server.caller()
        yield SharedServer(caller, neighbours, deaths)
        caller.close()


def is_quick(row: Row) -> bool:
    token_ms, *answers_ms = (int(row.figures[name]) for name in ("token ms", "first token ms", "answer ms"))
    return token_ms < NEXT_TOKEN_MS and max(answers_ms) < ANSWER_MS


@pytest.mark.parametrize("request_", expensive(), ids=lambda request: request.name)
def test_an_expensive_request_holds_up_no_neighbour(shared: SharedServer, request_: Expensive) -> None:
    rows: list[Row] = []
    for _ in range(ATTEMPTS):
        with Lateness() as lateness:
            row = measured(request_, shared.caller, shared.neighbours, shared.deaths)
        assert not row.failed, row
        if is_quick(row):
            return
        if lateness.worst_s < LATE_S:
            rows.append(row)
        assert len(rows) < TRIES, f"neighbours were held up {TRIES} times: {rows}"
    pytest.skip("the machine was too busy to measure")
