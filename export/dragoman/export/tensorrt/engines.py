"""Engines for the portable graphs of a bundle: every build runs in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dragoman.bundle.manifest import Dimensions, EngineFile, Graph, Precision
from dragoman.errors import EngineBuildError
from dragoman.export.progress import Advance, Stages
from dragoman.export.tensorrt.apart import run_apart
from dragoman.export.tensorrt.compilation import Job
from dragoman.export.tensorrt.options import BuildOptions
from dragoman.export.tensorrt.products import wide_products
from dragoman.export.tensorrt.profiles import profiles_of
from dragoman.export.tensorrt.toolchain import chosen_capabilities, find_toolchain

__all__ = ["build_engines"]

_WORKER = (sys.executable, "-m", "dragoman.export.tensorrt.worker")
_SUFFIXES = {"tensorrt": "plan", "tensorrt_rtx": "engine"}


def build_engines(
    directory: Path,
    graphs: Sequence[Graph],
    *,
    dimensions: Dimensions,
    precision: Precision,
    options: BuildOptions,
    stages: Stages,
    output: Path | None = None,
) -> tuple[EngineFile, ...]:
    """Build the portable graphs in `directory` and write the engines to `output`, beside them if it is None; a stage an
    engine."""
    toolchain = find_toolchain(options)
    left_out = () if options.scores else ("forced",)
    portable = [graph for graph in graphs if graph.lowering == "portable" and graph.role not in left_out]
    if not portable:
        raise EngineBuildError("engines are built from the portable graphs, and the export made none")
    # One answer for all engines of a bundle: a server loads them together, on one GPU.
    wide = sorted({kind for graph in portable for kind in wide_products(directory / graph.file)})
    capabilities = chosen_capabilities(toolchain, options, wide_products=wide)
    engines = []
    for graph in portable:
        job = Job(
            flavour=toolchain.flavour,
            graph=directory / graph.file,
            engine=(output or directory) / f"{graph.role}.{_SUFFIXES[toolchain.flavour]}",
            compute_capabilities=capabilities,
            profiles=profiles_of(graph, dimensions, options.limits),
        )
        started = time.monotonic()
        with stages.stage(f"TensorRT {graph.role}") as advance:
            _build_apart(job, advance)
        engines.append(
            EngineFile(
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
    """Run the job in a worker process; whatever ends it, no half-written engine is left."""
    try:
        ended = run_apart(_WORKER, job.to_json(), advance)
    finally:
        job.part.unlink(missing_ok=True)
    if ended.complaint is not None:
        raise EngineBuildError(f"{job.flavour}: {ended.complaint}")
    if ended.crash is not None:
        raise EngineBuildError(
            f"the {job.flavour} builder {ended.crash} while it built {job.graph.name} for "
            f"{', '.join(job.compute_capabilities)} ({ended.last_words()}); "
            "try another --precision or fewer compute capabilities"
        )
