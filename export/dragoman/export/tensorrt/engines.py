"""Engines for the portable graphs of a bundle: every build runs in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dragoman.bundle.manifest import Dimensions, Engine, Graph, Precision
from dragoman.errors import EngineBuildError
from dragoman.export.progress import Advance, Stages
from dragoman.export.tensorrt.compilation import Job
from dragoman.export.tensorrt.options import EngineOptions
from dragoman.export.tensorrt.products import multiplies_in_fp32
from dragoman.export.tensorrt.profiles import profiles_of
from dragoman.export.tensorrt.toolchain import chosen_capabilities, find_toolchain

__all__ = ["build_engines"]

STOP_TIMEOUT_S = 5.0
"""How long a build that was told to stop may take before it is killed."""

_WORKER = (sys.executable, "-m", "dragoman.export.tensorrt.worker")
_SUFFIXES = {"tensorrt": "plan", "tensorrt_rtx": "engine"}


def build_engines(
    directory: Path,
    graphs: Sequence[Graph],
    *,
    dimensions: Dimensions,
    precision: Precision,
    options: EngineOptions,
    stages: Stages,
) -> tuple[Engine, ...]:
    """Build the portable graphs in `directory` and write the engines beside them; a stage an engine."""
    toolchain = find_toolchain(options)
    portable = [graph for graph in graphs if graph.lowering == "portable"]
    if not portable:
        raise EngineBuildError("engines are built from the portable graphs, and the export made none")
    # One answer for all engines of a bundle: a server loads them together, on one GPU.
    fp32_products = any(multiplies_in_fp32(directory / graph.file) for graph in portable)
    capabilities = chosen_capabilities(toolchain, options, fp32_products=fp32_products)
    engines = []
    for graph in portable:
        job = Job(
            flavour=toolchain.flavour,
            graph=directory / graph.file,
            engine=directory / f"{graph.role}.{_SUFFIXES[toolchain.flavour]}",
            compute_capabilities=capabilities,
            profiles=profiles_of(graph, dimensions, options.limits),
        )
        started = time.monotonic()
        with stages.stage(f"TensorRT {graph.role}") as advance:
            _build_apart(job, advance)
        engines.append(
            Engine(
                role=graph.role,
                file=job.engine.name,
                flavour=toolchain.flavour,
                version=toolchain.version,
                precision=precision,
                compute_capabilities=capabilities,
                profiles=job.profiles,
                build_seconds=round(time.monotonic() - started, 2),
            )
        )
    return tuple(engines)


def _build_apart(job: Job, advance: Advance) -> None:
    """Run the job in a worker process; whatever ends it, no worker and no half-written engine is left."""
    with tempfile.TemporaryFile("w+") as order, tempfile.TemporaryFile("w+", errors="replace") as noise:
        order.write(job.to_json())
        order.seek(0)
        last: dict[str, Any] = {}
        try:
            with _worker(order, noise) as (process, messages):
                for line in messages:
                    last = json.loads(line)
                    advance(last.get("share", 1.0))
                code = process.wait()
        finally:
            job.part.unlink(missing_ok=True)
        if "error" in last:
            raise EngineBuildError(f"{job.flavour}: {last['error']}")
        if "done" not in last:
            noise.seek(0)
            raise EngineBuildError(_crash(job, code, noise.read()))


@contextmanager
def _worker(order: IO[str], noise: IO[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    process = subprocess.Popen(
        _WORKER,
        stdin=order,
        stdout=subprocess.PIPE,
        stderr=noise,
        text=True,
        encoding="utf-8",
    )
    messages = process.stdout
    if messages is None:  # never: it was asked for
        raise EngineBuildError("the build process has no pipe")
    try:
        yield process, messages
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        messages.close()


def _crash(job: Job, code: int, noise: str) -> str:
    end = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    last = noise.strip().splitlines()[-1:] or ["it printed nothing"]
    return (
        f"the {job.flavour} builder {end} while it built {job.graph.name} for {', '.join(job.compute_capabilities)} "
        f"({last[0][:300]}); try another --precision or fewer compute capabilities"
    )
