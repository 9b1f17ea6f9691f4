"""Behind the same Triton: dragoman's continuous batching against a CTranslate2 model with dynamic batching.

Poisson arrivals, rates rising in steps, both servers in turn, several rounds at each rate. A rate is sustained when the
median round's p99 stays below four times the unloaded latency and nothing fails. That gives the slower server the looser
limit, so the rates within the same limit for both are reported, too. Both sides are tuned first: each choice
is loaded at one rate, and the one with the lowest p99 is taken.

A model with random weights ends no sentence: all its translations have the same number of tokens on both sides. That
favours the side that batches requests: no translation of a batch is waited for by shorter ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bundles import bundle_of
from benchmarks.cells import checkpoint_of, read_sentences
from benchmarks.enlarged_checkpoint import ENLARGED
from benchmarks.machine import load_average
from benchmarks.peers import CACHE, CTRANSLATE2, ROOT, converted_to_ctranslate2
from benchmarks.random_checkpoint import REFERENCE
from benchmarks.sustained import by_limit, has_failed_twice
from benchmarks.triton_server import HOST, running, triton_with
from dragoman.bundle.manifest import Precision
from dragoman.search import DecodingOptions
from dragoman.serving.in_process import open_model
from dragoman.serving.supervisor.ports import free_port

__all__ = ["PACES", "measure_online"]

ENDLESS = 60  # tokens; what takes longer never ends
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
class Pace:
    """The rate that loads nobody, the one that both sides are tuned at, the one the climb starts with, its steps, and how
    long a round is, so that there is a 99th percentile to speak of."""

    idle_rate: float
    tuning_rate: float
    first_rate: float
    step: float
    round_s: float


@dataclass(frozen=True, slots=True)
class Contest:
    """What is served and how it is loaded; `target_tokens`: exactly so many, where the model ends no sentence by itself."""

    checkpoint: Path
    precision: Precision
    beam: int
    pace: Pace
    texts: tuple[str, ...]
    target_tokens: int | None = None

    @property
    def options(self) -> str:
        """Those of a request to dragoman."""
        options: dict[str, object] = {"beam_size": self.beam, "cache": False}
        if self.target_tokens is not None:
            languages = {"source_language": "en", "target_language": "de", "split": "none"}
            options |= {**languages, "min_length": self.target_tokens, "max_length": self.target_tokens}
        return json.dumps(options)


@dataclass(frozen=True, slots=True)
class Engines:
    """What a user of dragoman can turn."""

    engines: int
    threads: int


BATCHINGS = (Batching(1, 2, 0), Batching(2, 1, 0), Batching(1, 2, 2000), Batching(2, 1, 2000))
ENGINES = (Engines(1, 1), Engines(1, 2), Engines(2, 1))
ROUNDS = 3
NLLB = "random-nllb-600m"
NLLB_TARGET_TOKENS = 24
PACES = {
    REFERENCE.name: Pace(20.0, 1000.0, 600.0, 1.125, 3.0),
    ENLARGED.name: Pace(4.0, 60.0, 20.0, 1.25, 5.0),
    NLLB: Pace(0.2, 2.5, 1.5, 1.25, 20.0),
}

Choice = TypeVar("Choice", Batching, Engines)


def measure_online(
    models: Sequence[str], quick: bool = False, precision: Precision = "int8", beam: int = 1
) -> list[dict[str, Any]]:
    """Both curves, both highest sustained rates, and the settings that each side was best with, for each model."""
    return [_measure(_contest(model, precision, beam, quick)) for model in models]


def _contest(model: str, precision: Precision, beam: int, quick: bool) -> Contest:
    checkpoint, pace = checkpoint_of(model, CACHE), PACES[model]
    pace = replace(pace, round_s=pace.round_s / 2) if quick else pace
    texts = read_sentences(1000)[0]
    if model == NLLB:
        return Contest(checkpoint, precision, beam, pace, tuple(texts), NLLB_TARGET_TOKENS)
    return Contest(checkpoint, precision, beam, pace, _that_end(texts, bundle_of(checkpoint, precision)))


def _that_end(texts: Sequence[str], bundle: Path) -> tuple[str, ...]:
    """Without the one or two sentences in a thousand that the model translates without end, up to its limit of 127 tokens.

    They take ten times as long as the others: a round of some hundred requests would have them in its last percent or not.
    """
    model = open_model(bundle)
    sources = [tuple(model.tokenizer.encode(text)) for text in texts]
    said = model.decode(sources, DecodingOptions(max_length=ENDLESS))
    return tuple(text for text, (best, *_) in zip(texts, said, strict=True) if best.finish == "eos")


def _measure(contest: Contest) -> dict[str, Any]:
    batching = _best(BATCHINGS, _ctranslate2, contest)
    engines = _best(ENGINES, _dragoman, contest)
    with _dragoman(contest, engines) as ours, _ctranslate2(contest, batching) as theirs:
        curves = _climb({"dragoman": ours, "ctranslate2": theirs}, contest)
    measured = {"date": date.today().isoformat(), "load_average": load_average()}
    what = {"model": contest.checkpoint.name, "measured": measured, "precision": contest.precision, "beam": contest.beam}
    settings = {"dragoman_settings": str(engines), "ctranslate2_settings": str(batching)}
    return {**what, **settings, **curves, "limits": by_limit(curves)}


def _best(
    choices: Sequence[Choice],
    served: Callable[[Contest, Choice], contextlib.AbstractContextManager[Served]],
    contest: Contest,
) -> Choice:
    """The choice with the lowest p99 at a rate that loads this machine; the better of two rounds."""
    pace = contest.pace

    def p99_ms(choice: Choice) -> float:
        with served(contest, choice) as side:
            p99 = min(_load(side, contest, pace.tuning_rate, pace.round_s)["p99_ms"] for _ in range(2))
        print(f"  {contest.checkpoint.name} {choice}: p99 {p99:.1f} ms at {pace.tuning_rate:g}/s", file=sys.stderr)
        return p99

    return min(choices, key=p99_ms)


def _climb(sides: dict[str, Served], contest: Contest) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    pace = contest.pace
    for name, side in sides.items():
        _load(side, contest, pace.first_rate / 3, 2)
        unloaded = _load(side, contest, pace.idle_rate, 3 * pace.round_s)["p50_ms"]
        curves[name] = {"unloaded_ms": unloaded, "limit_ms": LIMIT * unloaded, "points": []}
    loosest = max(curve["limit_ms"] for curve in curves.values())
    rate, climbing = pace.first_rate, set(sides)
    while climbing:
        loads: dict[str, list[dict[str, float]]] = {name: [] for name in sides if name in climbing}
        for number in range(ROUNDS):
            for name in sorted(loads, reverse=bool(number % 2)):
                loads[name].append(_load(sides[name], contest, rate, pace.round_s, seed=number))
        for name, points in loads.items():
            median = _median(points)
            curves[name]["points"].append({**median, "rounds": points})
            print(f"  {name} at {rate:g}/s: p50 {median['p50_ms']:.1f}, p99 {median['p99_ms']:.1f} ms", file=sys.stderr)
            if has_failed_twice(curves[name]["points"], loosest):
                climbing.discard(name)
        rate = round(rate * pace.step, 1)
    return curves


def _median(points: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(point[name] for point in points) for name in points[0]}


def _load(side: Served, contest: Contest, rate: float, seconds: float, seed: int = 1) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.poisson_load", side.address, str(rate), str(seconds), str(seed)]
    command += ["-" if side.batched else contest.options]
    lines = "\n".join(contest.texts)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@contextlib.contextmanager
def _dragoman(contest: Contest, choice: Engines) -> Iterator[Served]:
    address = f"{HOST}:{free_port(HOST)}"
    bundle = bundle_of(contest.checkpoint, contest.precision)
    command = [str(Path(sys.executable).with_name("dragoman")), "serve", f"--bundle=en-de={bundle}"]
    command += [
        f"--engines={choice.engines}",
        f"--threads={choice.threads}",
        f"--grpc-address={address}",
        f"--metrics-address={HOST}:{free_port(HOST)}",
    ]
    with running(command, dict(os.environ), address):
        yield Served("dragoman", address, batched=False)


@contextlib.contextmanager
def _ctranslate2(contest: Contest, batching: Batching) -> Iterator[Served]:
    model = ROOT / "benchmarks" / "triton_ctranslate2" / "model.py"
    with triton_with(model, _config(contest, batching), {"OMP_NUM_THREADS": str(batching.threads)}) as address:
        yield Served("ctranslate2", address, batched=True)


def _config(contest: Contest, batching: Batching) -> str:
    packages = next((CTRANSLATE2.python().parent.parent / "lib").glob("python3.*")) / "site-packages"
    values = {
        "packages": packages,
        "model": converted_to_ctranslate2(contest.checkpoint, contest.precision),
        "checkpoint": contest.checkpoint,
        "compute_type": COMPUTE_TYPE[contest.precision],
        "threads": batching.threads,
        "beam": contest.beam,
        "target_tokens": contest.target_tokens or 0,
    }
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()]
    return CONFIG.format(delay_us=batching.delay_us, instances=batching.instances, parameters="\n".join(lines))
