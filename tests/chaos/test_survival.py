"""Processes die and hang; callers hear of it at once and are served again within seconds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from served import Caller, Server, eventually

LONG = "The quick brown fox jumps over the lazy dog while the old man reads his newspaper in the garden. "


@pytest.fixture(scope="module")
def survivor(reference_bundle: Path) -> Iterator[Server]:
    with Server.start([f"en-de={reference_bundle}"], "--hang-timeout", "1.5", "--threads", "1") as server:
        yield server


@pytest.fixture
def caller(survivor: Server) -> Iterator[Caller]:
    caller = survivor.caller()
    eventually(lambda: serves(caller))
    yield caller
    caller.close()


def serves(caller: Caller) -> bool:
    try:
        return bool(caller.translate(["Are you there?"], timeout_s=5, cache=False).best)
    except grpc.RpcError:
        return False


def engine(server: Server) -> int:
    """The pid of the engine; there is exactly one."""
    return eventually(lambda: server.children()["engine"][0] if len(server.children()["engine"]) == 1 else None)


def send_many(caller: Caller, count: int) -> list[grpc.Future]:
    return [caller.translate_later([f"{LONG} {number}"], cache=False, beam_size=4) for number in range(count)]


def outcomes(futures: list[grpc.Future]) -> list[str]:
    """`ok`, or the code of our own that each request ended with."""
    found = []
    for future in futures:
        error = future.exception(timeout=30)
        found.append("ok" if error is None else error.details().partition(":")[0])
    return found


def test_an_engine_killed_under_load_is_replaced_and_every_request_is_answered(survivor: Server, caller: Caller) -> None:
    before = engine(survivor)
    futures = send_many(caller, 24)
    eventually(lambda: any(future.done() for future in futures))
    os.kill(before, signal.SIGKILL)
    assert outcomes(futures) == ["ok"] * 24
    assert engine(survivor) != before


def test_a_request_sent_while_the_engine_is_down_waits_for_the_next_one(survivor: Server, caller: Caller) -> None:
    os.kill(engine(survivor), signal.SIGKILL)
    assert caller.translate(["Can you hear me?"], cache=False).best


def test_an_engine_that_hangs_is_replaced(survivor: Server, caller: Caller) -> None:
    before = engine(survivor)
    os.kill(before, signal.SIGSTOP)
    futures = send_many(caller, 4)
    assert outcomes(futures) == ["ok"] * 4
    assert engine(survivor) != before


def test_an_engine_out_of_memory_fails_requests_or_is_replaced_but_serves_again(survivor: Server, caller: Caller) -> None:
    pid = engine(survivor)
    used = psutil.Process(pid).memory_info().vms
    psutil.Process(pid).rlimit(psutil.RLIMIT_AS, (used + (1 << 20), used + (1 << 20)))
    futures = [caller.translate_later([f"{LONG} {number}"] * 4, cache=False, beam_size=8) for number in range(6)]
    assert set(outcomes(futures)) <= {
        "ok",
        "RESTARTING",
        "SUSPECT",
        "INTERNAL",
        "OVERLOADED retry_after_ms=1000",
        "INVALID_REQUEST",
    }
    if psutil.pid_exists(pid) and engine(survivor) == pid:
        os.kill(pid, signal.SIGKILL)  # it came through with what it had; the limit must go for the next test
    eventually(lambda: serves(caller), timeout_s=20)


def test_a_triton_that_hangs_is_noticed_by_a_real_request(survivor: Server, caller: Caller) -> None:
    before = survivor.children()
    os.kill(before["triton"][0], signal.SIGSTOP)
    eventually(lambda: survivor.children()["triton"] not in ([], before["triton"]), timeout_s=40)
    eventually(lambda: serves(caller), timeout_s=20)
    assert survivor.children()["engine"] == before["engine"]


def test_a_killed_triton_is_replaced(survivor: Server, caller: Caller) -> None:
    before = survivor.children()
    os.kill(before["triton"][0], signal.SIGKILL)
    eventually(lambda: survivor.children()["triton"] not in ([], before["triton"]), timeout_s=20)
    eventually(lambda: serves(caller), timeout_s=20)


def test_restarts_are_counted(survivor: Server, caller: Caller) -> None:
    os.kill(engine(survivor), signal.SIGKILL)
    eventually(lambda: serves(caller))
    eventually(lambda: survivor.metrics().get('dragoman_restarts_total{what="engine"}', 0) >= 1)
