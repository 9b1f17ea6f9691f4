"""Three times as much as the server can do: refusals are quick, and memory does not grow."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import wait
from dataclasses import dataclass, field

import psutil

from hostile.deaths import Deaths
from hostile.http2 import INFER, Call, Connection, headers, message
from hostile.processes import begun
from hostile.report import Row, judged
from served import Server, request

FACTOR = 3.0
PEAK_S = 6.0
SETTLED_S = 20.0
"""Memory is compared from here on: by then every cache has been filled once."""
LAST_ANSWERS_S = 40.0
REFUSAL_P99_S = 0.050
GROWTH = 0.05
FILLS_THE_QUEUE = 1200
"""Sent at once at the beginning; the default queue has 1024 places."""
BURST_S = 0.25
"""The opening burst is answered by then, and what is refused later met a load, not a queue in Triton."""
IN_FLIGHT = 64
"""As much as is ever useful."""
TEXT = (
    "The old man and his dog walked along the river until they came to a small house at the edge of the forest, number {}."
)
EXPECTED = ("ok", "OVERLOADED", "DEADLINE_EXCEEDED")


@dataclass(frozen=True, slots=True)
class Found:
    """What a load saw. Times are from the moment when a call was sent to that when the kernel had its answer."""

    peak: float  # answers a second
    goodput: float
    codes: Counter[str]
    refused_s: list[float]
    refused_at_once: int
    """Of these, the first: what of the opening burst found the queue full, behind a thousand calls in Triton itself."""


@dataclass
class Load:
    """Calls at any rate, whatever becomes of them, from one thread that computes next to nothing."""

    address: str
    codes: Counter[str] = field(default_factory=Counter)
    refused_s: list[float] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self._connection = Connection(self.address)
        self._head = headers(INFER)

    @property
    def in_flight(self) -> int:
        return len(self._connection.open)

    def send(self, count: int, *, cached: bool = False) -> None:
        for _ in range(count):
            self.number += 1
            options = {"beam_size": 2, "max_length": 8, "cache": cached}
            body = request("translate", [TEXT.format(self.number)], options).SerializeToString()
            self._connection.call(self._head, message(body))
        self._connection.flush()

    def receive(self, timeout_s: float = 0.002) -> None:
        for call in self._connection.receive(timeout_s):
            code = _code(call)
            self.codes[code] += 1
            if code == "OVERLOADED":
                self.refused_s.append(call.seconds)
        self._connection.flush()
        if self._connection.is_closed:
            raise ConnectionError("the server closed the connection")

    def receive_rest(self) -> None:
        deadline_s = time.monotonic() + LAST_ANSWERS_S
        while self.in_flight and time.monotonic() < deadline_s:
            self.receive(0.02)
        self.codes["no answer"] += self.in_flight


def overloaded(server: Server, deaths: Deaths, seconds: float) -> Row:
    """A row: goodput against the peak, the 99th percentile of refusals, growth of the engine."""
    deaths.whole()
    before, resident = deaths.counted(), list[tuple[float, int]]()
    engine = psutil.Process(server.children()["engine"][0])
    with begun(loaded, [(server.grpc, seconds)]) as futures:
        began_s = time.monotonic() + PEAK_S
        while not wait(futures, timeout=0.5).done:
            if deaths.counted() == before:
                resident.append((time.monotonic() - began_s, engine.memory_info().rss))
        found = futures[0].result()
    deaths.whole()
    return _row(found, resident, deaths.counted() - before)


def _row(found: Found, resident: list[tuple[float, int]], died: Counter[str]) -> Row:
    late = [held for at_s, held in resident if at_s > SETTLED_S]
    growth = max(late) / late[0] - 1 if late else 0.0
    refused_ms = sorted(1e3 * seconds for seconds in found.refused_s)
    behind_ms = sorted(1e3 * seconds for seconds in found.refused_s[found.refused_at_once :])
    wrong = [f"{count} times {code}" for code, count in found.codes.items() if code not in EXPECTED and count]
    if not refused_ms:
        wrong.append("nothing was refused: the load was too small")
    p50_ms, p99_ms, longest_ms = (_quantile(refused_ms, part) for part in (0.5, 0.99, 1.0))
    figures: dict[str, float | int | str] = {
        "peak/s": round(found.peak),
        "goodput": round(found.goodput / found.peak, 2),
        "refused": len(refused_ms),
        "refusal p50 ms": round(p50_ms),
        "refusal p99 ms": round(p99_ms),
        "longest refusal ms": round(longest_ms),
        "p99 ms behind the burst": round(_quantile(behind_ms, 0.99)),
        "engine growth %": round(100 * growth, 1),
    }
    slow = p99_ms > 1e3 * REFUSAL_P99_S or growth > GROWTH
    return judged(f"overload {FACTOR:g}x", found.codes.total(), died, wrong, figures, slow=slow)


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[int(part * (len(ordered) - 1))] if ordered else 0.0


def _code(call: Call) -> str:
    """As of `Outcome`: what an error says stands legibly in the last header block."""
    if len(call.data) > len(message(b"")):
        return "ok"
    return next((code for code in EXPECTED[1:] if code.encode() in call.trailers), repr(call.trailers[:200]))


def loaded(address: str, seconds: float) -> Found:
    """The peak, and then `FACTOR` times that; in a process of its own."""
    peak = _peak(address)
    load = Load(address)
    asked_s, due, began_s, at_once = 0.0, float(FILLS_THE_QUEUE), time.monotonic(), 0
    while (passed_s := time.monotonic() - began_s) < seconds:
        load.send(int(due) - load.number)
        load.receive()
        at_once = len(load.refused_s) if passed_s < BURST_S else at_once
        if passed_s - asked_s > 0.25:  # what the server does now counts, should the machine have become faster or slower
            due += FACTOR * max(peak, load.codes["ok"] / max(passed_s, 1.0)) * (passed_s - asked_s)
            asked_s = passed_s
    goodput = load.codes["ok"] / seconds
    load.receive_rest()
    return Found(peak, goodput, load.codes, load.refused_s, at_once)


def _peak(address: str) -> float:
    """Answers a second with as much in flight as is ever useful."""
    load, began_s = Load(address), time.monotonic()
    load.send(1, cached=True)  # the engine has to look for answers in its cache from now on, also when its queue is full
    while time.monotonic() - began_s < PEAK_S:
        load.send(IN_FLIGHT - load.in_flight)
        load.receive()
    done = load.codes["ok"]
    load.receive_rest()
    return max(done / PEAK_S, 1.0)
