"""Three times as much as the server can do: refusals are quick, and memory does not grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import psutil

from hostile.deaths import Deaths
from hostile.outcomes import Outcome, failed
from hostile.report import Row, judged
from served import Caller, Server, request

FACTOR = 3.0
SETTLED_S = 20.0
"""Memory is compared from here on: by then every cache has been filled once."""
REFUSAL_P99_S = 0.050
GROWTH = 0.05
FILLS_THE_QUEUE = 1200
"""Sent at once at the beginning; the default queue has 1024 places."""
TEXT = (
    "The old man and his dog walked along the river until they came to a small house at the edge of the forest, number {}."
)


@dataclass
class Load:
    """Calls at a steady rate, whatever becomes of them."""

    caller: Caller
    outcomes: list[Outcome] = field(default_factory=list)
    in_flight: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def answered(self) -> int:
        return sum(each.code == "ok" for each in self.outcomes)

    def send(self) -> None:
        """One request, answered in the background."""
        with self._lock:
            self.number += 1
            self.in_flight += 1
        message = request("translate", [TEXT.format(self.number)], {"beam_size": 2, "max_length": 8, "cache": False})
        began_s = time.monotonic()
        call = self.caller.stub.ModelInfer.future(message, timeout=60)
        call.add_done_callback(lambda done: self._ended(done, time.monotonic() - began_s))

    def _ended(self, call: grpc.Future, seconds: float) -> None:
        error = call.exception()
        with self._lock:
            self.in_flight -= 1
            self.outcomes.append(Outcome("ok", seconds=seconds) if error is None else failed(error, seconds))


def overloaded(server: Server, deaths: Deaths, seconds: float) -> Row:
    """A row: goodput against the peak, the 99th percentile of refusals, growth of the engine."""
    deaths.whole()
    before = deaths.counted()
    peak = _peak(server.caller(), 6.0)
    load = Load(server.caller())
    engine = psutil.Process(server.children()["engine"][0])
    asked_s = 0.0
    began_s, resident = time.monotonic(), list[tuple[float, int]]()
    due = float(FILLS_THE_QUEUE)
    while (passed_s := time.monotonic() - began_s) < seconds and deaths.counted() == before:
        for _ in range(int(due) - load.number):
            load.send()
        if passed_s - asked_s > 0.25:  # what the server does now counts, should the machine have become faster or slower
            due += FACTOR * max(peak, load.answered / max(passed_s, 1.0)) * (passed_s - asked_s)
            asked_s = passed_s
        if not resident or passed_s - resident[-1][0] > 0.5:
            resident.append((passed_s, engine.memory_info().rss))
        threading.Event().wait(0.005)
    _until(lambda: load.in_flight == 0, 40)
    return _row(load, peak, seconds, resident, deaths.counted() - before)


def _row(load: Load, peak: float, seconds: float, resident: list[tuple[float, int]], died: dict[str, int]) -> Row:
    refused = sorted(each.seconds for each in load.outcomes if each.code == "OVERLOADED")
    late = [held for at_s, held in resident if at_s > SETTLED_S]
    growth = max(late) / late[0] - 1 if late else 0.0
    p99_s = refused[int(0.99 * len(refused))] if refused else 0.0
    wrong = [
        f"{each.code} {each.message}"[:200]
        for each in load.outcomes
        if each.code not in ("ok", "OVERLOADED", "DEADLINE_EXCEEDED")
    ]
    if not refused:
        wrong.append("nothing was refused: the load was too small")
    figures: dict[str, float | int | str] = {
        "peak/s": round(peak),
        "goodput": round(load.answered / seconds / peak, 2),
        "refused": len(refused),
        "refusal p99 ms": round(1e3 * p99_s),
        "engine growth %": round(100 * growth, 1),
    }
    slow = p99_s > REFUSAL_P99_S or growth > GROWTH
    return judged(f"overload {FACTOR:g}x", len(load.outcomes), died, wrong, figures, slow=slow)


def _peak(caller: Caller, seconds: float) -> float:
    """Answers a second with as much in flight as is ever useful."""
    load, began_s = Load(caller), time.monotonic()
    while time.monotonic() - began_s < seconds:
        for _ in range(64 - load.in_flight):
            load.send()
        threading.Event().wait(0.002)
    done = load.answered
    _until(lambda: load.in_flight == 0, 40)
    caller.close()
    return max(done / seconds, 1.0)


def _until(holds: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < deadline_s:
        threading.Event().wait(0.02)
