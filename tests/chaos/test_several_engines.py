"""Two engines for one bundle: they share the work, and one carries on while the other is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from served import Caller, Server, eventually
from shared_sentences import LONG


@pytest.fixture(scope="module")
def pair(reference_bundle: Path) -> Iterator[Server]:
    with Server.start([f"en-de={reference_bundle}"], "--engines", "2", "--threads", "1") as server:
        yield server


@pytest.fixture
def caller(pair: Server) -> Iterator[Caller]:
    caller = pair.caller()
    eventually(lambda: len(pair.children()["engine"]) == 2)
    yield caller
    caller.close()


def cpu_s(pid: int) -> float:
    return psutil.Process(pid).cpu_times().user


def test_both_work_and_answer_alike(pair: Server, caller: Caller) -> None:
    engines = pair.children()["engine"]
    before = [cpu_s(engine) for engine in engines]
    asked = [caller.translate_later([LONG], cache=False, beam_size=4) for _ in range(16)]
    assert len({tuple(caller.answer(future.result()).best) for future in asked}) == 1
    assert all(cpu_s(engine) > used for engine, used in zip(engines, before, strict=True))


def test_sessions_stay_with_the_engine_that_holds_them(caller: Caller) -> None:
    opened = [caller.encode(["Good morning."])[0] for _ in range(4)]
    for session in opened:
        caller.decode(session, {"do": "close"})


def test_while_one_is_replaced_the_other_answers(pair: Server, caller: Caller) -> None:
    killed, kept = pair.children()["engine"]
    os.kill(killed, signal.SIGKILL)
    assert all(caller.translate([LONG], cache=False).best for _ in range(5))  # the dead one had begun nothing
    assert kept in pair.children()["engine"]
    eventually(lambda: len(pair.children()["engine"]) == 2 and killed not in pair.children()["engine"])
    assert caller.translate([LONG], cache=False).best


def test_a_reload_replaces_both_and_fails_no_request(pair: Server, caller: Caller) -> None:
    old = set(pair.children()["engine"])
    pair.process.send_signal(signal.SIGHUP)

    def replaced() -> bool:
        assert caller.translate(["Are you there?"], cache=False).best
        now = set(pair.children()["engine"])
        return len(now) == 2 and not now & old

    eventually(replaced)
