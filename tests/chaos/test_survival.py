"""Processes die and hang; callers hear of it at once and are served again within seconds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2

from dragoman.cli import main
from served import Caller, Server, eventually

LONG = "The quick brown fox jumps over the lazy dog while the old man reads his newspaper in the garden. "


@pytest.fixture(scope="module")
def survivor(reference_bundle: Path) -> Iterator[Server]:
    with Server.start([f"en-de={reference_bundle}"], "--hang-timeout", "1.5", "--threads", "1") as server:
        yield server


@pytest.fixture(scope="module")
def in_python(reference_bundle: Path) -> Iterator[Server]:
    """Without the door: every model has a stub of its own, which may die."""
    with Server.start([f"en-de={reference_bundle}"], "--no-door", "--threads", "1") as server:
        yield server


@pytest.fixture
def its_caller(in_python: Server) -> Iterator[Caller]:
    caller = in_python.caller()
    eventually(lambda: serves(caller))
    yield caller
    caller.close()


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


def ready(caller: Caller) -> bool:
    try:
        return bool(caller.stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=5).ready)
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


def test_an_engine_killed_under_load_is_replaced_and_nobody_hangs(survivor: Server, caller: Caller) -> None:
    before = engine(survivor)
    futures = send_many(caller, 24)
    eventually(lambda: any(future.done() for future in futures))
    os.kill(before, signal.SIGKILL)
    ended = outcomes(futures)
    assert set(ended) <= {"ok", "RESTARTING"}
    refusals = [error for error in (future.exception() for future in futures) if error is not None]
    assert {error.code() for error in refusals} <= {grpc.StatusCode.UNAVAILABLE}
    eventually(lambda: serves(caller), timeout_s=15)
    assert engine(survivor) != before


def test_a_request_sent_while_the_engine_is_down_waits_for_the_next_one(survivor: Server, caller: Caller) -> None:
    os.kill(engine(survivor), signal.SIGKILL)
    assert caller.translate(["Can you hear me?"], cache=False).best


def test_an_engine_that_hangs_is_replaced(survivor: Server, caller: Caller) -> None:
    before = engine(survivor)
    os.kill(before, signal.SIGSTOP)
    futures = send_many(caller, 4)
    assert set(outcomes(futures)) <= {"ok", "RESTARTING"}
    assert engine(survivor) != before


def test_an_engine_out_of_memory_fails_requests_or_is_replaced_but_serves_again(survivor: Server, caller: Caller) -> None:
    pid = engine(survivor)
    used = psutil.Process(pid).memory_info().vms
    psutil.Process(pid).rlimit(psutil.RLIMIT_AS, (used + (1 << 20), used + (1 << 20)))
    futures = [caller.translate_later([f"{LONG} {number}"] * 4, cache=False, beam_size=8) for number in range(6)]
    assert set(outcomes(futures)) <= {"ok", "RESTARTING", "INTERNAL", "OVERLOADED retry_after_ms=1000", "INVALID_REQUEST"}
    if psutil.pid_exists(pid) and engine(survivor) == pid:
        os.kill(pid, signal.SIGKILL)  # it came through with what it had; the limit must go for the next test
    eventually(lambda: serves(caller), timeout_s=20)


def test_a_dead_stub_is_noticed_and_triton_is_replaced(in_python: Server, its_caller: Caller) -> None:
    before = in_python.children()
    os.kill(before["stub"][0], signal.SIGKILL)
    eventually(lambda: in_python.children()["triton"] not in ([], before["triton"]), timeout_s=20)
    eventually(lambda: serves(its_caller), timeout_s=20)
    assert in_python.children()["engine"] == before["engine"], "the engine need not die with Triton"


@pytest.mark.parametrize("model", ["translate_stream", "encoder", "decoder"])
def test_readiness_is_false_while_a_stub_is_dead_and_true_when_all_models_serve_again(
    in_python: Server, its_caller: Caller, model: str
) -> None:
    """Of the models that nobody probes: Triton by itself would stay ready for ever."""
    (stub,) = [pid for pid in in_python.children()["stub"] if f"{model}_0" in " ".join(psutil.Process(pid).cmdline())]
    assert ready(its_caller)
    os.kill(stub, signal.SIGKILL)
    eventually(lambda: not ready(its_caller), timeout_s=10)
    eventually(lambda: ready(its_caller), timeout_s=20)
    assert serves(its_caller), "ready means that a request is answered now"
    assert "".join(response["chunk"] for response in its_caller.stream("Are you there?", cache=False))
    session, _ = its_caller.encode(["Are you there?"])
    assert its_caller.decode(session, {"do": "step", "candidates": 1}, [(0, -1, 0)])["BEST_TOKENS"].size == 1
    its_caller.decode(session, {"do": "close"})


def test_the_probe_of_a_health_check_fails_while_the_stub_is_dead_and_no_longer(
    in_python: Server, its_caller: Caller
) -> None:
    probe = ["probe", "--server", in_python.grpc, "--timeout", "2"]
    assert main(probe) == 0
    (stub,) = [pid for pid in in_python.children()["stub"] if "translate_0" in " ".join(psutil.Process(pid).cmdline())]
    os.kill(stub, signal.SIGKILL)
    eventually(lambda: main(probe) == 1, timeout_s=10)
    eventually(lambda: main(probe) == 0, timeout_s=20)


def test_a_stub_that_hangs_is_noticed_by_a_real_request(in_python: Server, its_caller: Caller) -> None:
    before = in_python.children()
    stopped = [pid for pid in before["stub"] if "translate_0" in " ".join(psutil.Process(pid).cmdline())]
    for pid in stopped or before["stub"]:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: in_python.children()["triton"] not in ([], before["triton"]), timeout_s=40)
    eventually(lambda: serves(its_caller), timeout_s=20)


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


def test_requests_that_only_waited_outlive_their_engine(reference_bundle: Path) -> None:
    with Server.start([f"en-de={reference_bundle}"], "--max-batch", "4", "--threads", "1") as server:
        caller = server.caller()
        futures = send_many(caller, 10)  # a beam of 4 in 4 rows: one at a time
        eventually(lambda: any(future.done() for future in futures))
        os.kill(engine(server), signal.SIGKILL)
        ended = outcomes(futures)
        caller.close()
    assert ended.count("ok") >= 8
    assert set(ended) <= {"ok", "RESTARTING"}
