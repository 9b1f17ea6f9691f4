"""Whether a run says that the client was its limit: with real worker processes that are, and are not."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
from scripted_triton import Script, serving
from slow_senders import BLOCKING_S, BURNT_S, open_blocking, open_burning

from calm import on_a_calm_machine
from dragoman.client.addresses import parse_addresses
from dragoman.loadtest.arrivals import shape_named
from dragoman.loadtest.plan import ClosedLoop, OpenLoop, Plan
from dragoman.loadtest.remarks import remarks_on
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.run import Snapshot, run
from dragoman.loadtest.sender import Target
from dragoman.loadtest.workload import Item, Workload

WORKLOAD = Workload("words", (Item("one"), Item("two"), Item("three")))
NOBODY = "127.0.0.1:9"
"""The senders of these runs answer themselves."""


def plan(load: OpenLoop | ClosedLoop, workers: int, address: str = NOBODY) -> Plan:
    return Plan(Target(parse_addresses(address)), WORKLOAD, load, workers=workers, warm_up_s=0.0)


def blames_the_client(result: RunResult) -> bool:
    return any("The client was the limit" in remark for remark in remarks_on(result))


@on_a_calm_machine
def test_one_worker_that_can_not_keep_pace_reports_it_and_several_can() -> None:
    rate = 1.5 / BLOCKING_S  # half as much again as one process can send
    load = OpenLoop(shape_named("constant", rate, 1.5))
    one, four = (run(plan(load, workers), open_sender=open_blocking) for workers in (1, 4))
    assert one.figures.requests == four.figures.requests == rate * 1.5
    assert blames_the_client(one)
    assert one.client.lag_p99_s > 0.4
    assert not blames_the_client(four)


@on_a_calm_machine
def test_one_worker_of_several_that_stood_still_is_seen() -> None:
    stopped: list[int] = []

    def hold_one(snapshot: Snapshot) -> None:
        pids = sorted(child.pid or 0 for child in multiprocessing.active_children())
        if snapshot.elapsed_s > 0.5 and not stopped:
            stopped.append(pids[0])
            os.kill(pids[0], signal.SIGSTOP)
        elif snapshot.elapsed_s > 1.5 and len(stopped) == 1:
            os.kill(stopped[0], signal.SIGCONT)
            stopped.append(0)

    load = OpenLoop(shape_named("constant", 40, 2.5))
    with serving(Script(delay_s=lambda _: 1.0)) as address:
        held = run(plan(load, 2, address), observe=hold_one)
        free = run(plan(load, 2, address))
    assert held.figures.requests == free.figures.requests == 100
    assert blames_the_client(held)
    assert held.client.lag_p99_s > 0.5
    assert not blames_the_client(free)


@on_a_calm_machine
def test_every_worker_reports_its_processor_time() -> None:
    result = run(plan(ClosedLoop(2, 1.5), 2), open_sender=open_burning)
    burnt = result.figures.answered_rate * BURNT_S
    assert len(result.client.worker_cpu) == 2
    assert sum(result.client.worker_cpu) == pytest.approx(burnt, rel=0.25)
    assert blames_the_client(result)


@on_a_calm_machine
def test_workers_that_wait_for_the_server_use_little() -> None:
    with serving(Script(delay_s=lambda _: 0.3)) as address:
        result = run(plan(ClosedLoop(4, 1.5), 2, address))
    assert len(result.client.worker_cpu) == 2
    assert max(result.client.worker_cpu) < 0.3
