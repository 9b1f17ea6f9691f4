"""Processes die and hang; they are replaced within seconds and callers are served again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from served import Caller, Server, eventually
from shared_sentences import LONG


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


def replaced(server: Server, what: str) -> int:
    """How many were replaced, once none is being: one that is killed while it starts has failed to start."""
    failed = {"engine": "engine died", "triton": "triton failed"}[what]
    return eventually(
        lambda: (count,) if (count := len(server.events(f"{what} replaced"))) == len(server.events(failed)) else None
    )[0]


def engine(server: Server) -> int:
    """The pid of the engine; there is exactly one."""
    return eventually(lambda: server.children()["engine"][0] if len(server.children()["engine"]) == 1 else None)


def send_many(caller: Caller, count: int) -> list[grpc.Future]:
    return [caller.translate_later([f"{LONG} {number}"], cache=False, beam_size=4) for number in range(count)]


def outcomes(futures: list[grpc.Future], timeout_s: float = 120) -> list[str]:
    """`ok`, or the error code with which each request ended."""
    found = []
    for future in futures:
        error = future.exception(timeout=timeout_s)
        found.append("ok" if error is None else error.details().partition(":")[0])
    return found


def test_requests_survive_the_death_of_their_engine(survivor: Server, caller: Caller) -> None:
    before = engine(survivor)
    futures = send_many(caller, 96)  # more than are decoded together
    eventually(lambda: any(future.done() for future in futures))
    os.kill(before, signal.SIGKILL)
    assert set(outcomes(futures)) == {"ok"}
    eventually(lambda: engine(survivor) != before)


def test_a_request_sent_while_the_engine_is_down_waits_for_the_next_one(survivor: Server, caller: Caller) -> None:
    os.kill(engine(survivor), signal.SIGKILL)
    assert caller.translate(["Can you hear me?"], cache=False).best


def test_requests_survive_an_engine_that_hangs(survivor: Server, caller: Caller) -> None:
    before = engine(survivor)
    futures = send_many(caller, 4)
    os.kill(before, signal.SIGSTOP)
    futures += send_many(caller, 4)
    assert set(outcomes(futures)) == {"ok"}
    assert engine(survivor) != before


def test_an_engine_out_of_memory_fails_requests_or_is_replaced_but_serves_again(survivor: Server, caller: Caller) -> None:
    pid = engine(survivor)
    used = psutil.Process(pid).memory_info().vms
    psutil.Process(pid).rlimit(psutil.RLIMIT_AS, (used + (1 << 20), used + (1 << 20)))
    futures = [caller.translate_later([f"{LONG} {number}"] * 4, cache=False, beam_size=8) for number in range(6)]
    assert set(outcomes(futures)) <= {"ok", "RESTARTING", "INTERNAL", "OVERLOADED retry_after_ms=1000", "INVALID_REQUEST"}
    if psutil.pid_exists(pid) and engine(survivor) == pid:
        os.kill(pid, signal.SIGKILL)  # it came through with what it had; the limit must go for the next test
    eventually(lambda: serves(caller))


def test_an_engine_that_is_killed_again_and_again_is_back_at_once_every_time(survivor: Server, caller: Caller) -> None:
    """Pauses are for starts that fail; all of these succeed."""
    for _ in range(4):
        os.kill(engine(survivor), signal.SIGKILL)
        assert caller.translate(["Are you back?"], cache=False).best
    assert [event["pause_s"] for event in survivor.events("engine died")[-4:]] == [0.0] * 4


def test_an_engine_that_cannot_start_is_tried_again_with_growing_pauses_until_it_can(
    reference_bundle: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(reference_bundle, bundle)
    with Server.start([f"en-de={bundle}"], "--threads", "1") as server:
        manifest = (bundle / "manifest.json").rename(bundle / "manifest.away")
        os.kill(engine(server), signal.SIGKILL)
        failed = eventually(lambda: found if len(found := server.events("engine did not start")) >= 5 else None)
        manifest.rename(bundle / "manifest.json")
        caller = server.caller()
        eventually(lambda: serves(caller))
        caller.close()
    assert [event["pause_s"] for event in failed[:5]] == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_a_triton_that_hangs_is_replaced_within_seconds(survivor: Server, caller: Caller) -> None:
    before = survivor.children()
    os.kill(before["triton"][0], signal.SIGSTOP)
    eventually(lambda: survivor.children()["triton"] not in ([], before["triton"]))
    fresh = survivor.caller()
    eventually(lambda: serves(fresh))
    fresh.close()
    assert survivor.children()["engine"] == before["engine"]
    assert survivor.events("triton failed")[-1]["reason"] == "it fell silent"


def test_a_triton_that_is_killed_again_and_again_is_back_at_once_every_time(survivor: Server) -> None:
    for _ in range(4):
        before = replaced(survivor, "triton")
        os.kill(survivor.children()["triton"][0], signal.SIGKILL)
        eventually(lambda before=before: len(survivor.events("triton replaced")) > before)
    assert [event["pause_s"] for event in survivor.events("triton failed")[-4:]] == [0.0] * 4


def test_a_triton_under_heavy_load_is_not_taken_for_a_hung_one(survivor: Server, caller: Caller) -> None:
    before = survivor.children()
    futures = [caller.translate_later([f"{LONG} {n}"] * 8, cache=False) for n in range(60)]
    assert {outcome.partition(" ")[0] for outcome in outcomes(futures)} <= {"ok", "OVERLOADED"}
    assert survivor.children() == before


def test_servers_of_tests_end_with_the_tests(reference_bundle: Path) -> None:
    start = f"server = Server.start(['en-de={reference_bundle}'])"
    program = f"from served import Server; {start}; print(server.process.pid, flush=True); input()"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as tests:
        assert tests.stdout is not None
        server = psutil.Process(int(tests.stdout.readline()))
        processes = [server, *server.children(recursive=True)]
        tests.kill()  # as an interrupted run does with its workers
        tests.communicate()
    assert len(processes) > 2
    eventually(lambda: not any(is_running(process) for process in processes))


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("what", ["engine", "triton"])
def test_restart_metrics_equal_the_log(survivor: Server, caller: Caller, what: str) -> None:
    before = replaced(survivor, what)
    os.kill(survivor.children()[what][0], signal.SIGKILL)
    eventually(lambda: len(survivor.events(f"{what} replaced")) > before)
    eventually(lambda: restarts(survivor, what) == before + 1)


def restarts(server: Server, what: str) -> float:
    try:
        return server.metrics().get(f'dragoman_restarts_total{{what="{what}"}}', 0)
    except OSError:
        return -1.0  # there is no metrics endpoint while Triton is being restarted
