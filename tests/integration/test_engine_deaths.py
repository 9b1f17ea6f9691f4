"""Requests and the deaths of engines, on a real server: resent once, refused as suspect after the second death."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from served import Caller, Server, eventually

SENTENCE = "The old man and his dog walked along the river until it was dark, and nobody knew where they were. "
LONG = [f"{number}. {SENTENCE}" * 8 for number in range(40)]


@pytest.fixture(scope="module")
def server(reference_bundle: Path) -> Iterator[Server]:
    with Server.start([f"en-de={reference_bundle}"], "--threads", "1") as server:
        yield server


def kill_engine(server: Server) -> None:
    (engine,) = eventually(lambda: server.children()["engine"])
    os.kill(engine, signal.SIGKILL)
    eventually(lambda: engine not in server.children()["engine"])


def test_a_request_survives_the_death_of_its_engine(server: Server, caller: Caller) -> None:
    expected = caller.translate(LONG[:2], beam_size=1, cache=False).best
    (engine,) = server.children()["engine"]
    os.kill(engine, signal.SIGSTOP)  # it takes the request and does nothing with it
    answer = caller.translate_later(LONG[:2], 60.0, beam_size=1, cache=False)
    kill_engine(server)
    assert caller.answer(answer.result()).best == expected


def test_a_request_with_which_two_engines_died_is_refused_and_stays_refused(server: Server, caller: Caller) -> None:
    options = {"beam_size": 12, "num_hypotheses": 12, "cache": False}
    poison = caller.translate_later(LONG, 60.0, **options)
    for _ in range(2):
        assert caller.translate(["It is raining."], 60.0, cache=False).best  # the other one is in hand when this is answered
        assert not poison.done()
        kill_engine(server)
    assert poison.code() is grpc.StatusCode.INTERNAL
    assert poison.details().startswith("SUSPECT: ")
    again = caller.translate_later(LONG, 60.0, **options)
    assert again.details().startswith("SUSPECT: ")
    assert caller.translate(LONG[:1], 60.0, beam_size=1).best
