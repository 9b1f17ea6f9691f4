"""`dragoman probe`: what a health check takes for ready, and what for alive."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from fake_triton import Refuse, ScriptedTriton

from dragoman.cli import main

REFUSALS = {
    "OVERLOADED retry_after_ms=500: the queue is full": grpc.StatusCode.UNAVAILABLE,
    "DRAINING: this server is going away": grpc.StatusCode.UNAVAILABLE,
    "RESTARTING: the engine died; send the request again": grpc.StatusCode.UNAVAILABLE,
}
FAILURES = {
    "INTERNAL: something broke": grpc.StatusCode.INTERNAL,
    "Request for unknown model: 'translate' is not found": grpc.StatusCode.UNAVAILABLE,
    "stub process is not healthy": grpc.StatusCode.INTERNAL,
}


@pytest.fixture
def triton() -> Iterator[ScriptedTriton]:
    scripted = ScriptedTriton()
    yield scripted
    scripted.stop()


def test_a_server_that_translates_is_ready_and_alive(triton: ScriptedTriton) -> None:
    assert main(["probe", "--server", triton.url]) == 0
    assert main(["probe", "--live", "--server", triton.url]) == 0


def test_the_word_is_decoded_and_costs_one_token(triton: ScriptedTriton) -> None:
    main(["probe", "--server", triton.url, "--model", "en-de"])
    (request,) = triton.received
    assert (request.model, request.options["cache"], request.options["max_length"]) == ("translate", False, 1)
    assert request.bundle == "en-de"


@pytest.mark.parametrize("message", REFUSALS)
def test_a_server_that_refuses_is_alive_but_not_ready(triton: ScriptedTriton, message: str) -> None:
    triton.answers.extend([Refuse(REFUSALS[message], message)] * 2)
    assert main(["probe", "--server", triton.url]) == 1
    assert main(["probe", "--live", "--server", triton.url]) == 0


@pytest.mark.parametrize("message", FAILURES)
def test_a_server_that_fails_is_neither(triton: ScriptedTriton, message: str) -> None:
    triton.answers.extend([Refuse(FAILURES[message], message)] * 2)
    assert main(["probe", "--server", triton.url]) == 1
    assert main(["probe", "--live", "--server", triton.url]) == 1


def test_a_server_that_hangs_is_not_alive(triton: ScriptedTriton) -> None:
    triton.gate.clear()
    assert main(["probe", "--live", "--server", triton.url, "--timeout", "0.3"]) == 1


def test_an_unreachable_server_is_not_alive() -> None:
    assert main(["probe", "--live", "--server", "127.0.0.1:1"]) == 1


def test_two_servers_at_once_are_impossible_usage() -> None:
    assert main(["probe", "--server", "a:8001,b:8001"]) == 2
