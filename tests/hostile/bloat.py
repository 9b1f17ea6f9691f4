"""Many calls at once, each within every limit: together they must not take the memory of an engine or of Triton."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import TracebackType

import grpc
import psutil
from tritonclient.grpc.service_pb2 import ModelInferRequest as Request

from hostile.deaths import Deaths
from hostile.neighbours import Neighbours, longest_s
from hostile.outcomes import failed
from hostile.poisons import command
from hostile.report import Row, judged
from served import Caller, Server, request

MOST_ENGINE_MIB = 400
"""More than the engine's memory contract has for texts and answers, as much again for what malloc keeps."""
EVERY_S = 0.05
ALLOWED = {"ok", "OVERLOADED", "INVALID_REQUEST", "DEADLINE_EXCEEDED"}
ROWS = 64
LINES, FIGURES = "a\n" * 49_900, "5 " * 49_900
TIMEOUT_MS = 5_000

Calls = Callable[[Caller], Iterator[Request]]


class Peak:
    """The most memory that some processes have at a time, as a context manager."""

    def __init__(self, *pids: int) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._began = [process.memory_info().rss for process in self._processes]
        self._most = list(self._began)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)

    @property
    def grown_mib(self) -> list[int]:
        """Of each process, since the beginning."""
        return [(most - began) >> 20 for most, began in zip(self._most, self._began, strict=True)]

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            for number, process in enumerate(self._processes):
                if process.is_running():
                    self._most[number] = max(self._most[number], process.memory_info().rss)


def _sessions(text: str, count: int) -> Calls:
    return lambda _: (request("encoder", [text], {}) for _ in range(count))


def _commands(count: int) -> Calls:
    def calls(caller: Caller) -> Iterator[Request]:
        session, _ = caller.encode(["Hello."])
        raw = json.dumps({"do": "text", "tokens": [[9] * 500] * 256}, separators=(",", ":"))
        yield from (command(raw, session) for _ in range(count))

    return calls


def _widest_steps(count: int) -> Calls:
    def calls(caller: Caller) -> Iterator[Request]:
        opened = [caller.encode(["Hello."]) for _ in range(count)]
        for session, info in opened:
            start = [(0, -1, info["tokens"]["decoder_start"])] * ROWS
            step = b"".join(number.to_bytes(4, "little", signed=True) for row in start for number in row)
            yield command(json.dumps({"do": "step", "candidates": info["choices"]}), session, step)

    return calls


def _texts(text: str, texts: int, count: int, **options: object) -> Calls:
    asked = {"cache": False, "timeout_ms": TIMEOUT_MS, **options}
    return lambda _: (request("translate", [f"{n} {text}"[:99_900] for n in range(texts)], asked) for _ in range(count))


FLOODS: dict[str, Calls] = {
    "600 sessions of 50,000 lines": _sessions(LINES, 600),
    "600 sessions of 50,000 figures": _sessions(FIGURES, 600),
    "400 commands of 250 kB": _commands(400),
    "16 sessions, all candidates of 64 rows": _widest_steps(16),
    "300 texts of 50,000 lines": _texts(LINES, 1, 300, split="line"),
    "12 requests of 8 MB": _texts(LINES, 80, 12, split="line"),
    "40 answers of 8 MB": _texts(f"Hi. {FIGURES}", 5, 40, beam_size=16, num_hypotheses=16),
}


def flooded(server: Server, deaths: Deaths, names: tuple[str, ...] = tuple(FLOODS)) -> list[Row]:
    """A row for each flood: how its calls ended, by how much engine and Triton grew, and how long small callers waited."""
    with Neighbours(server.grpc) as neighbours:
        return [_flooded(server, deaths, neighbours, name, FLOODS[name]) for name in names]


def _flooded(server: Server, deaths: Deaths, neighbours: Neighbours, name: str, calls: Calls) -> Row:
    deaths.whole()
    before, caller, children = deaths.counted(), server.caller(), server.children()
    requests, began_s = list(calls(caller)), time.monotonic()
    with Peak(children["engine"][0], children["triton"][0]) as peak:
        codes = Counter(_code(future) for future in [caller.stub.ModelInfer.future(each, timeout=120) for each in requests])
    waits = neighbours.between(began_s, time.monotonic())
    caller.close()
    deaths.whole()
    engine_mib, triton_mib = peak.grown_mib
    wrong = [f"{count} times {code}" for code, count in codes.items() if code not in ALLOWED]
    if engine_mib > MOST_ENGINE_MIB:
        wrong.append(f"the engine took {engine_mib} MiB more")
    figures: dict[str, float | int | str] = {"engine MiB": engine_mib, "Triton MiB": triton_mib}
    figures |= {f"neighbours' {kind} ms": round(1e3 * longest_s(waits, kind)) for kind in ("token", "first token")}
    figures |= codes
    return judged(name, len(requests), deaths.counted() - before, wrong, figures)


def _code(future: grpc.Future) -> str:
    try:
        future.result()
    except grpc.RpcError as error:
        return failed(error).code
    return "ok"
