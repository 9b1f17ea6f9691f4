"""The rounds of the suite in their order, each with its share of the time and of the count."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hostile.bloat import flooded
from hostile.connections import hung_on
from hostile.deaths import Deaths
from hostile.expensive import Expensive, expensive
from hostile.files import bundles_spoilt, checkpoints_spoilt
from hostile.formats import formats_spoilt
from hostile.fuzz import frames, fuzzed
from hostile.hammer import KINDS, hammered
from hostile.http_requests import http_fuzzed, many_chunks
from hostile.kills import ACCIDENTS, survived
from hostile.neighbours import Neighbours, Wait, failures, longest_s
from hostile.option_values import option_values
from hostile.outcomes import LOST, Outcome, stream, unary
from hostile.overload import overloaded
from hostile.poisons import COMMANDS, NAMES, command, named, poisons
from hostile.processes import spread
from hostile.report import Row, judged
from hostile.slices import longest_slices
from served import Caller, Server

SLICED_MS = 300.0
SLICE_S = 0.020
"""The longest that the engine's thread may work on texts, options and answers at a time."""
NEXT_TOKEN_S = 0.050
"""The longest that a neighbour may wait for its next token because of somebody else's request."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of each; `seconds` bounds the whole."""

    calls: int
    hammer_seconds: float
    fuzz_seconds: float
    overload_seconds: float
    files_seconds: float
    full: bool


DEFAULT = Plan(calls=20_000, hammer_seconds=16, fuzz_seconds=45, overload_seconds=40, files_seconds=60, full=True)
QUICK = Plan(calls=300, hammer_seconds=3, fuzz_seconds=8, overload_seconds=24, files_seconds=15, full=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """What the rounds run against."""

    server: Server
    deaths: Deaths
    http: str
    bundle: Path
    checkpoint: Path
    seed: int


def rounds(stage: Stage, plan: Plan) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Name and work of each round."""
    yield "poisons", lambda: [poisoned(stage.server.grpc, stage.deaths)]
    yield "expensive requests", lambda: list(beside_neighbours(stage.server, stage.deaths, full=plan.full))
    yield "slices", lambda: [sliced(stage.bundle)]
    yield "fuzz", lambda: _fuzz(stage, plan)
    yield "bloat", lambda: flooded(stage.server, stage.deaths)
    yield "connections", lambda: hung_on(stage.server, stage.deaths)
    yield "files", lambda: _files(stage, plan)
    yield "kills", lambda: [survived(stage.server, stage.deaths, *accident) for accident in ACCIDENTS]
    yield "overload", lambda: [overloaded(stage.server, stage.deaths, plan.overload_seconds)]
    for busy in (False, True):
        for kind in KINDS:
            yield f"{'busy ' * busy}hammer {kind}", lambda kind=kind, busy=busy: [_hammer(stage, plan, kind, busy=busy)]  # type: ignore[misc]


def poisoned(address: str, deaths: Deaths) -> Row:
    """Every poison by every way in: each is INVALID_REQUEST, and nothing else notices."""
    before, wrong, count, caller = deaths.counted(), list[str](), 0, Caller(address)

    def expect(name: str, outcome: Outcome, *codes: str) -> None:
        nonlocal count
        count += 1
        if outcome.code not in codes or not outcome.is_answer:
            wrong.append(f"{name}: {outcome.code} {outcome.message[:120]}")

    for poison in poisons():
        expect(poison.name, unary(caller.stub, poison.request("translate")), "INVALID_REQUEST")
        expect(f"{poison.name}, encoder", unary(caller.stub, poison.request("encoder")), "INVALID_REQUEST")
        expect(f"{poison.name}, streamed", stream(caller.stub, poison.request("translate_stream")), "INVALID_REQUEST")
    session, info = caller.encode(["Hello."])
    step = b"".join(number.to_bytes(4, "little", signed=True) for number in (0, -1, info["tokens"]["decoder_start"]))
    for name, raw in COMMANDS.items():
        expect(f"COMMAND: {name}", unary(caller.stub, command(raw, session, step)), "INVALID_REQUEST")
    for name, raw_name in NAMES.items():
        expect(f"MODEL: {name}", unary(caller.stub, named(raw_name)), "INVALID_REQUEST")
        expect(f"MODEL: {name}, streamed", stream(caller.stub, named(raw_name, "translate_stream")), "INVALID_REQUEST")
    caller.decode(session, {"do": "close"})
    caller.close()
    deaths.whole()
    return judged("poisons", count, deaths.counted() - before, wrong)


def beside_neighbours(server: Server, deaths: Deaths, *, full: bool) -> Iterator[Row]:
    """Each expensive request beside small ones: a row each, and one for the neighbours alone."""
    caller = server.caller()
    deaths.whole()
    with Neighbours(server.grpc) as neighbours:
        began_s = time.monotonic()
        neighbours.settled(began_s + 3)
        alone = neighbours.between(began_s, time.monotonic())
        yield judged("neighbours alone", len(alone), {}, failures(alone), _waits_ms(alone))
        for request in expensive(full=full):
            yield measured(request, caller, neighbours, deaths)
    caller.close()


def sliced(bundle: Path) -> Row:
    """A row for the longest slice of the engine's thread that any expensive request takes, in processor time."""
    (found,) = spread(longest_slices, [(bundle, SLICED_MS)])
    longest = {name: max(slices.values()) for name, (_, slices) in found.items()}
    slowest = max(longest, key=lambda name: longest[name])
    figures = {"longest ms": round(1e3 * longest[slowest], 1), "of": slowest}
    wrong = [f"{name}: {code}" for name, (code, _) in found.items() if code == "INTERNAL"]
    return judged("slices of the engine's thread", len(found), {}, wrong, figures, slow=longest[slowest] > SLICE_S)


def measured(request: Expensive, caller: Caller, neighbours: Neighbours, deaths: Deaths) -> Row:
    """A row for one expensive request."""
    before, began_s = deaths.counted(), time.monotonic()
    outcome = request.send(caller)
    ended_s = time.monotonic()
    deaths.whole()
    neighbours.settled(ended_s)
    waits = neighbours.between(began_s, ended_s)
    wrong = failures(waits)
    if request.is_cut_off:
        if outcome.code != LOST:
            wrong.append(f"{outcome.code} instead of the end of the connection")
    elif not outcome.is_answer or outcome.code in ("INTERNAL", "SUSPECT", "RESTARTING"):
        wrong.append(f"{outcome.code} {outcome.message}")
    if request.is_refused and outcome.code != "INVALID_REQUEST":
        wrong.append(f"{outcome.code} instead of a refusal")
    figures = {**_waits_ms(waits), "answer": f"{outcome.code} in {outcome.seconds:.1f} s"}
    slow = longest_s(waits, "token", "first token") > NEXT_TOKEN_S
    return judged(request.name, 1, deaths.counted() - before, wrong, figures, slow=slow)


def _waits_ms(waits: list[Wait]) -> dict[str, float | int | str]:
    return {f"{kind} ms": round(1e3 * longest_s(waits, kind)) for kind in ("token", "first token", "answer", "status")}


def _fuzz(stage: Stage, plan: Plan) -> list[Row]:
    def until_s() -> float:
        return time.monotonic() + plan.fuzz_seconds

    address, deaths, seed = stage.server.grpc, stage.deaths, stage.seed
    return [
        fuzzed(address, deaths, plan.calls, seed, until_s=until_s()),
        frames(address, deaths, plan.calls, seed, until_s=until_s()),
        http_fuzzed(stage.http, deaths, plan.calls, seed, until_s=until_s()),
        many_chunks(stage.http, deaths),
        option_values(address, deaths, min(plan.calls, int(plan.fuzz_seconds * 60)), seed),
    ]


def _files(stage: Stage, plan: Plan) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        until_s = time.monotonic() + plan.files_seconds / 3
        bundles = bundles_spoilt(stage.bundle, Path(directory), 1000, stage.seed, until_s)
        until_s = time.monotonic() + plan.files_seconds / 3
        formats = formats_spoilt(Path(directory), 1000, stage.seed, until_s)
        until_s = time.monotonic() + plan.files_seconds / 3
        return [bundles, formats, checkpoints_spoilt(stage.checkpoint, Path(directory), 200, stage.seed, until_s)]


def _hammer(stage: Stage, plan: Plan, kind: str, *, busy: bool) -> Row:
    processes = 2 if kind.startswith("bad") else 6
    until_s = time.monotonic() + plan.hammer_seconds
    return hammered(stage.server.grpc, stage.deaths, kind, plan.calls, processes=processes, until_s=until_s, busy=busy)
