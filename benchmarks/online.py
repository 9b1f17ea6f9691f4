"""Behind the same Triton: dragoman's continuous batching against a CTranslate2 model with dynamic batching.

Poisson arrivals, rates rising in steps, both servers in turn at each rate. A rate is sustained when p99 stays below four
times the unloaded latency and nothing fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tritonclient.grpc

from benchmarks.bundles import bundle_of
from benchmarks.cells import read_sentences
from benchmarks.peers import CTRANSLATE2, ROOT, converted_to_ctranslate2
from benchmarks.random_checkpoint import REFERENCE
from dragoman.bundle.manifest import Precision
from dragoman.serving.supervisor.ports import free_port
from dragoman.serving.triton.flags import Address, TritonFlags
from dragoman.serving.triton.installation import find_installation

__all__ = ["measure_online", "online_table"]

HOST = "127.0.0.1"
START_TIMEOUT_S = 90.0
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


CHOICES = (Batching(1, 2, 0), Batching(2, 1, 0), Batching(1, 2, 2000), Batching(2, 1, 2000))


def measure_online(quick: bool = False, precision: Precision = "int8", beam: int = 1) -> dict[str, Any]:
    """Both curves, both highest sustained rates, and the settings that CTranslate2 was fastest with."""
    texts, seconds = read_sentences(1000)[0], 4.0 if quick else 10.0
    batching = _best_batching(precision, beam, texts, seconds)
    with _dragoman(precision) as ours, _ctranslate2(precision, beam, batching) as theirs:
        sides = {"dragoman": ours, "ctranslate2": theirs}
        curves = _climb(sides, beam, texts, seconds)
    ratio = (
        curves["dragoman"]["sustained"] / curves["ctranslate2"]["sustained"] if curves["ctranslate2"]["sustained"] else None
    )
    return {"precision": precision, "beam": beam, "batching": str(batching), "sustained_ratio": ratio, **curves}


def _climb(sides: dict[str, Served], beam: int, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for name, side in sides.items():
        _load(side, 20, 2, beam, texts)
        unloaded = _load(side, 2, 2 * seconds, beam, texts)["p50_ms"]
        curves[name] = {"unloaded_ms": unloaded, "limit_ms": LIMIT * unloaded, "points": [], "sustained": 0.0}
    rate, climbing = 25.0, dict.fromkeys(sides, 2)  # a side stops climbing when it has failed twice
    while any(climbing.values()):
        for name, side in sides.items():
            if not climbing[name]:
                continue
            point = _load(side, rate, seconds, beam, texts)
            curves[name]["points"].append(point)
            if point["p99_ms"] <= curves[name]["limit_ms"] and not point["failed"]:
                curves[name]["sustained"] = rate
            else:
                climbing[name] -= 1
        rate = round(rate * 1.25, 1)
    return curves


def _best_batching(precision: Precision, beam: int, texts: Sequence[str], seconds: float) -> Batching:
    """The choice that holds the highest rate: each is climbed alone, coarsely."""

    def sustained(batching: Batching) -> float:
        with _ctranslate2(precision, beam, batching) as side:
            return float(_climb({"it": side}, beam, texts, seconds / 2)["it"]["sustained"])

    return max(CHOICES, key=sustained)


def _load(side: Served, rate: float, seconds: float, beam: int, texts: Sequence[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.poisson_load", side.address, str(rate), str(seconds), "1"]
    command += ["1" if side.batched else "0", str(beam)]
    done = subprocess.run(command, input="\n".join(texts), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@contextlib.contextmanager
def _dragoman(precision: Precision) -> Iterator[Served]:
    address = f"{HOST}:{free_port(HOST)}"
    command = [str(Path(sys.executable).with_name("dragoman")), "serve", f"--bundle=en-de={bundle_of(REFERENCE, precision)}"]
    command += [f"--grpc-address={address}", f"--metrics-address={HOST}:{free_port(HOST)}"]
    with _running(command, dict(os.environ), address):
        yield Served("dragoman", address, batched=False)


@contextlib.contextmanager
def _ctranslate2(precision: Precision, beam: int, batching: Batching) -> Iterator[Served]:
    port = free_port(HOST)
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "models"
        (repository / "translate" / "1").mkdir(parents=True)
        shutil.copyfile(ROOT / "benchmarks" / "triton_ctranslate2" / "model.py", repository / "translate" / "1" / "model.py")
        (repository / "translate" / "config.pbtxt").write_text(_config(precision, beam, batching), encoding="utf-8")
        installation = find_installation(Path(scratch) / "triton")
        flags = TritonFlags(
            repository, installation.backend_directory, Address(HOST, port), None, secrets.token_hex(8), f"bench{port}"
        )
        environment = {**os.environ, **installation.environment, "OMP_NUM_THREADS": str(batching.threads)}
        with _running([str(installation.binary), *flags.argv()], environment, f"{HOST}:{port}"):
            yield Served("ctranslate2", f"{HOST}:{port}", batched=True)


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


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str], address: str) -> Iterator[None]:
    """The server until the block ends; ready when its model is."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        _wait_until_ready(process, address)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with tritonclient.grpc.InferenceServerClient(address) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode} while starting")
            with contextlib.suppress(tritonclient.grpc.InferenceServerException):
                if client.is_model_ready("translate", client_timeout=1.0):
                    return
            time.sleep(0.1)
    raise RuntimeError(f"the server at {address} was not ready within {START_TIMEOUT_S:.0f} s")


def online_table(figures: dict[str, Any]) -> str:
    """The curves side by side."""
    lines = [
        f"{figures['precision']}, beam {figures['beam']}; CTranslate2 on Triton with {figures['batching']}, "
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
