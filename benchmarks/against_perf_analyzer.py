"""Checks the load test against NVIDIA's perf_analyzer: the same closed loop on the same server, alternating.

    python -m benchmarks.against_perf_analyzer --bundle bundles/tatoeba-en-de

perf_analyzer is the C++ binary inside the tritonclient 2.51.0 wheel. It lives in an environment of its own under the
cache, beside the two libraries it wants: CUDA's runtime (a wheel; no GPU is needed) and libb64 (a Debian package, which
is unpacked there, not installed).

The tools take turns. With --together they run at the same time, each with its own requests in flight: on a machine that
others use too, both then meet the same minutes, and what they say must still agree.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe_machine, load_average
from benchmarks.peers import CACHE, ROOT, Environment
from benchmarks.results import write_results
from benchmarks.statistics import Spread, ratios
from dragoman.client.addresses import parse_addresses
from dragoman.loadtest.histogram import Histogram
from dragoman.loadtest.plan import ClosedLoop, Plan
from dragoman.loadtest.run import Observer, Snapshot, run
from dragoman.loadtest.sender import RequestSettings, Target
from dragoman.loadtest.workload import Item, Workload

ENVIRONMENT = Environment("perf_analyzer", ("tritonclient==2.51.0", "nvidia-cuda-runtime-cu12==12.9.79"))
START_S, END_S = 1.0, 3.0  # what perf_analyzer takes before its first window and, at most, after its last
WINDOWS = 3  # perf_analyzer takes three windows as one measurement


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of one tool."""

    rate: float
    p50_ms: float


def main() -> int:
    arguments = _arguments()
    sentences = _sentences(arguments.workload, arguments.sentences)
    rows, figures = [], []
    with contextlib.ExitStack() as stack:
        address = arguments.to or stack.enter_context(_served(arguments.bundle))
        for concurrency in arguments.concurrency:
            measure = _together if arguments.together else _in_turn
            ours, theirs = measure(address, sentences, concurrency, arguments.rounds, arguments.seconds)
            rate = ratios([one.rate for one in ours], [one.rate for one in theirs])
            p50 = ratios([one.p50_ms for one in ours], [one.p50_ms for one in theirs])
            rows.append(f"| {concurrency} | {_middle(theirs)} | {_middle(ours)} | {rate} | {p50} | {_verdict(rate, p50)} |")
            figures.append(
                {
                    "concurrency": concurrency,
                    "dragoman": [asdict(one) for one in ours],
                    "perf_analyzer": [asdict(one) for one in theirs],
                    "rate_ratio": asdict(rate),
                    "p50_ratio": asdict(p50),
                }
            )
    head = "| at a time | perf_analyzer | dragoman loadtest | rate ratio | p50 ratio | within 10% |"
    turns = "both at the same time" if arguments.together else "one after the other"
    note = (
        f"Greedy search, {len(sentences)} sentences in turn, {arguments.rounds} rounds of {arguments.seconds:g} s a tool, "
        f"{turns}; ratios are ours over theirs, median (lowest to highest). perf_analyzer of tritonclient 2.51, async. "
        f"Load average at the end: {load_average():.1f}."
    )
    command = f"python -m benchmarks.against_perf_analyzer {' '.join(sys.argv[1:])}".strip()
    result = {"machine": describe_machine(), "command": command, "load_average": load_average(), "cells": figures}
    write_results("against_perf_analyzer", result, "\n".join([note, "", head, "|---|---|---|---|---|---|", *rows]))
    return 0 if all(row.endswith("| yes |") for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--to", metavar="HOST:PORT", help="a server that runs already")
    where.add_argument("--bundle", type=Path, default=ROOT / "bundles" / "tatoeba-en-de", help="what to serve for this")
    parser.add_argument("--workload", type=Path, required=True, help="sentences, one a line; .tsv: the first column")
    parser.add_argument("--sentences", type=int, default=64, help="how many of them, in turn")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8], help="requests at a time")
    parser.add_argument("--together", action="store_true", help="both tools at the same time")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one measurement")
    return parser.parse_args()


def _sentences(path: Path, count: int) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if line.strip()][:count]


def _in_turn(
    address: str, sentences: list[str], concurrency: int, rounds: int, seconds: float
) -> tuple[list[Round], list[Round]]:
    """Both tools in turn, and in turn the first: neither always meets the warmer machine."""
    ours: list[Round] = []
    theirs: list[Round] = []
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            if side == 0:
                ours.append(_measure_ours(address, sentences, concurrency, seconds))
            else:
                theirs.append(_measure_theirs(address, sentences, concurrency, seconds))
        print(f"{concurrency} at a time, round {number + 1}: ours {ours[-1]}, theirs {theirs[-1]}", file=sys.stderr)
    return ours, theirs


def _together(
    address: str, sentences: list[str], concurrency: int, rounds: int, seconds: float
) -> tuple[list[Round], list[Round]]:
    """Both tools at once: theirs starts in our warm-up, and we go on, uncounted, until it has ended."""
    ours: list[Round] = []
    theirs: list[Round] = []
    for number in range(rounds):
        with ThreadPoolExecutor(1) as pool:
            started: list[Future[Round]] = []

            def start(snapshot: Snapshot) -> None:
                if snapshot.elapsed_s > -START_S and not started:  # noqa: B023
                    started.append(pool.submit(_measure_theirs, address, sentences, concurrency, seconds))  # noqa: B023

            ours.append(_measure_ours(address, sentences, concurrency, seconds, observe=start, uncounted_s=END_S))
            theirs.append(started[0].result())
        print(f"{concurrency} at a time each, round {number + 1}: ours {ours[-1]}, theirs {theirs[-1]}", file=sys.stderr)
    return ours, theirs


def _measure_ours(
    address: str,
    sentences: list[str],
    concurrency: int,
    seconds: float,
    *,
    observe: Observer = lambda _: None,
    uncounted_s: float = 0.0,
) -> Round:
    workload = Workload("same", tuple(Item(sentence) for sentence in sentences))
    load = ClosedLoop(concurrency, seconds + uncounted_s)
    plan = Plan(Target(parse_addresses(address)), workload, load, RequestSettings(beam_size=1), warm_up_s=2.0)
    tally = run(plan, observe=observe).tally
    counted = tally.ordered()[: round(seconds / tally.slice_s)]
    latency = Histogram()
    for slot in counted:
        latency.add(slot.latency)
    return Round(sum(slot.answered for slot in counted) / (len(counted) * tally.slice_s), latency.percentile_s(50) * 1000)


def _measure_theirs(address: str, sentences: list[str], concurrency: int, seconds: float) -> Round:
    options = json.dumps({"beam_size": 1, "cache": False})
    data = [
        {"TEXT": {"content": [text], "shape": [1]}, "OPTIONS": {"content": [options], "shape": [1]}} for text in sentences
    ]
    with tempfile.TemporaryDirectory() as folder:
        inputs, report = Path(folder) / "inputs.json", Path(folder) / "report.csv"
        inputs.write_text(json.dumps({"data": data}), encoding="utf-8")
        window_ms = str(round(seconds * 1000 / WINDOWS))
        command = [str(ENVIRONMENT.python().parent / "perf_analyzer"), "-m", "translate", "-i", "grpc", "-u", address]
        command += ["--input-data", str(inputs), "--concurrency-range", str(concurrency), "--async", "-f", str(report)]
        # Any three windows will do: a noisy machine is averaged over rounds, not waited out.
        command += ["-p", window_ms, "--stability-percentage", "999", "--max-trials", str(WINDOWS)]
        done = subprocess.run(command, env=_libraries(), capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise SystemExit(f"perf_analyzer failed:\n{done.stdout}\n{done.stderr}")
        with report.open(encoding="utf-8") as file:
            row = next(csv.DictReader(file))
    return Round(float(row["Inferences/Second"]), float(row["p50 latency"]) / 1000)


def _libraries() -> dict[str, str]:
    """The environment in which perf_analyzer finds what it is linked against."""
    (runtime,) = ENVIRONMENT.python().parent.parent.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib")
    folders = [str(runtime)]
    if ctypes.util.find_library("b64") is None:
        folders.append(str(_libb64()))
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def _libb64() -> Path:
    home = CACHE / "libb64"
    if not list(home.glob("usr/lib/*/libb64.so.0d")):
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", "libb64-0d"], cwd=home, check=True, stderr=subprocess.DEVNULL)
        (package,) = home.glob("libb64-0d_*.deb")
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=home, check=True)
    return next(home.glob("usr/lib/*/libb64.so.0d")).parent


@contextlib.contextmanager
def _served(bundle: Path) -> Iterator[str]:
    """A separate server on a free port, gone at the end."""
    program = Path(sys.executable).with_name("dragoman")
    command = [str(program), "serve", "--bundle", f"en-de={bundle}", "--grpc-address", "127.0.0.1:0"]
    command += ["--metrics-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            for line in process.stdout or ():
                if line.startswith("ready:"):
                    yield line.split(" at ")[1].split()[0]
                    return
            raise SystemExit(f"the server did not start: {' '.join(command)}")
        finally:
            process.terminate()
            process.wait(timeout=60)


def _middle(rounds: list[Round]) -> str:
    middle = sorted(rounds, key=lambda one: one.rate)[len(rounds) // 2]
    return f"{middle.rate:.1f}/s, {middle.p50_ms:.1f} ms"


def _verdict(*ratios_of: Spread) -> str:
    return "yes" if all(0.9 <= one.median <= 1.1 for one in ratios_of) else "no"


if __name__ == "__main__":
    raise SystemExit(main())
