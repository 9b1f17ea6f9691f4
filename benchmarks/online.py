"""Behind the same Triton: dragoman's continuous batching against a CTranslate2 model with dynamic batching.

Poisson arrivals, rates rising in steps, both servers in turn, several rounds at each rate. A rate is sustained when the
median round's p99 stays below four times the unloaded latency and nothing fails. Both sides are tuned first: each choice
is loaded at one rate, and the one with the lowest p99 is taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bundles import bundle_of
from benchmarks.cells import read_sentences
from benchmarks.peers import CTRANSLATE2, ROOT, converted_to_ctranslate2
from benchmarks.random_checkpoint import REFERENCE
from benchmarks.triton_server import HOST, running, triton_with
from dragoman.bundle.manifest import Precision
from dragoman.serving.supervisor.ports import free_port

__all__ = ["measure_online", "online_table"]

LIMIT = 4.0  # p99 may be so many times the unloaded latency
COMPUTE_TYPE = {"fp32": "float32", "int8": "int8_float32"}
CONFIG = """
name: "translate"
backend: "python"
max_batch_size: 64
dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}
input {{ name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }}
output {{ name: "TRANSLATION" data_type: TYPE_STRING dims: [ 1 ] }}
instance_group {{ kind: KIND_CPU count: {instances} }}
{parameters}
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A server and how to talk to it."""

    name: str
    address: str
    batched: bool


@dataclass(frozen=True, slots=True)
class Batching:
    """What a user of Triton's dynamic batching can turn."""

    instances: int
    threads: int
    delay_us: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is sent."""

    texts: tuple[str, ...]
    beam: int


@dataclass(frozen=True, slots=True)
class Engines:
    """What a user of dragoman can turn."""

    engines: int
    threads: int


BATCHINGS = (Batching(1, 2, 0), Batching(2, 1, 0), Batching(1, 2, 2000), Batching(2, 1, 2000))
ENGINES = (Engines(1, 1), Engines(1, 2), Engines(2, 1))
TUNING_RATE, FIRST_RATE, STEP = 120.0, 60.0, 1.25
ROUNDS = 5

Choice = TypeVar("Choice", Batching, Engines)


def measure_online(quick: bool = False, precision: Precision = "int8", beam: int = 1) -> dict[str, Any]:
    """Both curves, both highest sustained rates, and the settings that each side was best with."""
    traffic, seconds = Traffic(tuple(read_sentences(1000)[0]), beam), 2.0 if quick else 4.0
    batching = _best(BATCHINGS, lambda choice: _ctranslate2(precision, beam, choice), traffic)
    engines = _best(ENGINES, lambda choice: _dragoman(precision, choice), traffic)
    with _dragoman(precision, engines) as ours, _ctranslate2(precision, beam, batching) as theirs:
        curves = _climb({"dragoman": ours, "ctranslate2": theirs}, traffic, seconds)
    ratio = (
        curves["dragoman"]["sustained"] / curves["ctranslate2"]["sustained"] if curves["ctranslate2"]["sustained"] else None
    )
    settings = {"dragoman_settings": str(engines), "ctranslate2_settings": str(batching)}
    return {"precision": precision, "beam": beam, "sustained_ratio": ratio, **settings, **curves}


def _best(
    choices: Sequence[Choice],
    served: Callable[[Choice], contextlib.AbstractContextManager[Served]],
    traffic: Traffic,
) -> Choice:
    """The choice with the lowest p99 at a rate that loads this machine; the better of two rounds."""

    def p99_ms(choice: Choice) -> float:
        with served(choice) as side:
            return min(_load(side, traffic, TUNING_RATE, 5.0)["p99_ms"] for _ in range(2))

    return min(choices, key=p99_ms)


def _climb(sides: dict[str, Served], traffic: Traffic, seconds: float) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for name, side in sides.items():
        _load(side, traffic, 20, 2)
        unloaded = _load(side, traffic, 4, 2 * seconds)["p50_ms"]
        curves[name] = {"unloaded_ms": unloaded, "limit_ms": LIMIT * unloaded, "points": [], "sustained": 0.0}
    rate, climbing = FIRST_RATE, dict.fromkeys(sides, 2)  # a side stops climbing when it fails twice in a row
    while any(climbing.values()):
        loads: dict[str, list[dict[str, float]]] = {name: [] for name in sides if climbing[name]}
        for number in range(ROUNDS):
            for name in sorted(loads, reverse=bool(number % 2)):
                loads[name].append(_load(sides[name], traffic, rate, seconds, seed=number))
        for name, points in loads.items():
            curves[name]["points"].append({**_median(points), "rounds": points})
            if _median(points)["p99_ms"] <= curves[name]["limit_ms"] and not any(point["failed"] for point in points):
                curves[name]["sustained"], climbing[name] = rate, 2
            else:
                climbing[name] -= 1
        rate = round(rate * STEP, 1)
    return curves


def _median(points: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(point[name] for point in points) for name in points[0]}


def _load(side: Served, traffic: Traffic, rate: float, seconds: float, seed: int = 1) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.poisson_load", side.address, str(rate), str(seconds), str(seed)]
    command += ["1" if side.batched else "0", str(traffic.beam)]
    lines = "\n".join(traffic.texts)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@contextlib.contextmanager
def _dragoman(precision: Precision, choice: Engines) -> Iterator[Served]:
    address = f"{HOST}:{free_port(HOST)}"
    command = [str(Path(sys.executable).with_name("dragoman")), "serve", f"--bundle=en-de={bundle_of(REFERENCE, precision)}"]
    command += [
        f"--engines={choice.engines}",
        f"--threads={choice.threads}",
        f"--grpc-address={address}",
        f"--metrics-address={HOST}:{free_port(HOST)}",
    ]
    with running(command, dict(os.environ), address):
        yield Served("dragoman", address, batched=False)


@contextlib.contextmanager
def _ctranslate2(precision: Precision, beam: int, batching: Batching) -> Iterator[Served]:
    model = ROOT / "benchmarks" / "triton_ctranslate2" / "model.py"
    with triton_with(model, _config(precision, beam, batching), {"OMP_NUM_THREADS": str(batching.threads)}) as address:
        yield Served("ctranslate2", address, batched=True)


def _config(precision: Precision, beam: int, batching: Batching) -> str:
    packages = next((CTRANSLATE2.python().parent.parent / "lib").glob("python3.*")) / "site-packages"
    values = {
        "packages": packages,
        "model": converted_to_ctranslate2(REFERENCE),
        "checkpoint": REFERENCE,
        "compute_type": COMPUTE_TYPE[precision],
        "threads": batching.threads,
        "beam": beam,
    }
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()]
    return CONFIG.format(delay_us=batching.delay_us, instances=batching.instances, parameters="\n".join(lines))


def online_table(figures: dict[str, Any]) -> str:
    """The curves side by side."""
    lines = [
        f"{figures['precision']}, beam {figures['beam']}; medians of rounds in turn. dragoman with "
        f"{figures['dragoman_settings']}, CTranslate2 on Triton with {figures['ctranslate2_settings']}: "
        "the best of those tried.",
        "",
        "| server | unloaded p50 | limit on p99 | highest rate sustained |",
        "|---|---|---|---|",
    ]
    for side in ("dragoman", "ctranslate2"):
        one = figures[side]
        lines.append(f"| {side} | {one['unloaded_ms']:.1f} ms | {one['limit_ms']:.0f} ms | {one['sustained']:g}/s |")
    ratio = figures["sustained_ratio"]
    lines += ["", f"Ratio of the highest rates: {'none' if ratio is None else f'{ratio:.2f}'} (goal: 1.5).", ""]
    lines += ["| rate | dragoman p50 / p99 | CTranslate2 p50 / p99 |", "|---|---|---|"]
    by_rate = {side: {point["rate"]: point for point in figures[side]["points"]} for side in ("dragoman", "ctranslate2")}
    for rate in sorted({*by_rate["dragoman"], *by_rate["ctranslate2"]}):
        cells = [_latency(by_rate[side].get(rate)) for side in ("dragoman", "ctranslate2")]
        lines.append(f"| {rate:g}/s | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _latency(point: dict[str, float] | None) -> str:
    if point is None:
        return ""
    failed = f", {point['failed']:.0f} failed" if point["failed"] else ""
    return f"{point['p50_ms']:.0f} / {point['p99_ms']:.0f} ms{failed}"
