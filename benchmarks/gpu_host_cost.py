"""What a decoder step on a GPU costs the host: the runtime and the engine above it, on a double that computes nothing.

PYTHONPATH=tests python -m benchmarks.gpu_host_cost --bundle BUNDLE     a bundle with portable graphs

A step on a GPU takes less than a millisecond, so what Python does for one counts. CUDA's and TensorRT's own calls are not in
the figures: the double answers them at once.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine, load_average
from benchmarks.results import write_results
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, Sequence
from dragoman.serving.engine.limits import ModelFacts
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from gpu_bundles import add_engines
from gpu_double.idle import IdleCuda, idle_gpu

CELLS = ((1, 1), (1, 32), (1, 128), (4, 1), (4, 8), (4, 32))  # beam, sequences
ROUNDS, STEPS = 7, 150
LIMITS = EngineLimits(max_rows=128)


def open_idle(bundle: Path, scratch: Path) -> tuple[TensorRtRuntime, IdleCuda, ModelFacts]:
    """The bundle's portable graphs as engines on the idle double."""
    copy = Path(shutil.copytree(bundle, scratch / "bundle"))
    manifest = add_engines(copy)
    cuda, importing = idle_gpu(copy, manifest)
    runtime = TensorRtRuntime(copy, manifest, importing=importing)
    facts = model_facts(manifest)
    runtime.contract(LIMITS, facts)
    return runtime, cuda, facts


def of_the_runtime(runtime: TensorRtRuntime, beam: int, sequences: int) -> float:
    """Seconds of a step of the decoder alone."""
    decoder = runtime.decoder(beam, sequences)
    decoder.join(runtime.encode([[5, 6, 7]] * sequences), range(sequences), [30] * sequences)
    given = np.full((sequences, beam), 50), np.full(sequences, 3), np.tile(np.arange(beam), (sequences, 1))

    def steps() -> float:
        for _ in range(STEPS):
            decoder.step(*given, 2 * beam)
        return STEPS

    return _seconds(steps)


def of_the_engine(runtime: TensorRtRuntime, cuda: IdleCuda, facts: ModelFacts, beam: int, sequences: int) -> float:
    """Seconds of a step with scheduling and search, from the first to the last of whole translations."""

    def steps() -> float:
        engine = _full_engine(runtime, facts, beam, sequences)
        before = cuda.launches
        while engine.busy:
            engine.wait()
            engine.step()
        launches: int = cuda.launches - before
        return launches

    return _seconds(steps)


def moved_in_a_step(
    runtime: TensorRtRuntime, cuda: IdleCuda, facts: ModelFacts, beam: int, sequences: int
) -> tuple[int, int]:
    """Bytes to the GPU and from it, in a step in the middle of a translation."""
    engine, device = _full_engine(runtime, facts, beam, sequences), runtime.device
    for _ in range(10):  # the first turns encode
        engine.wait()
        engine.step()
    before, up, down = cuda.launches, device.bytes_up, device.bytes_down
    engine.wait()
    engine.step()
    count = cuda.launches - before
    return (device.bytes_up - up) // count, (device.bytes_down - down) // count


def _full_engine(runtime: TensorRtRuntime, facts: ModelFacts, beam: int, sequences: int) -> Engine:
    """With so many sequences that all end at the same length, for which caches have room."""
    engine, longest = Engine(runtime, facts, LIMITS), min(facts.max_target_tokens, LIMITS.target_tokens_per_row)
    for _ in range(sequences):
        engine.submit(Sequence((5, 6, 7), DecodingOptions(beam_size=beam, max_length=longest, min_length=longest - 1)))
    return engine


def _seconds(steps: Callable[[], float]) -> float:
    """The median of some rounds' processor time a step, after one that is not counted."""
    found = []
    for _ in range(ROUNDS + 1):
        started = time.process_time()
        count = steps()
        found.append((time.process_time() - started) / count)
    return statistics.median(found[1:])


def main() -> None:
    """Measure every cell, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"machine": describe_machine(), "steps": []}
    lines = ["| beam | sequences | runtime | with engine and search | bytes up | bytes down |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        runtime, cuda, facts = open_idle(arguments.bundle, Path(scratch))
        for beam, sequences in CELLS:
            alone = of_the_runtime(runtime, beam, sequences) * 1e6
            whole = of_the_engine(runtime, cuda, facts, beam, sequences) * 1e6
            up, down = moved_in_a_step(runtime, cuda, facts, beam, sequences)
            cell = {"beam": beam, "sequences": sequences, "runtime_us": alone, "engine_us": whole}
            figures["steps"].append({**cell, "bytes_up": up, "bytes_down": down})
            lines.append(f"| {beam} | {sequences} | {alone:.0f} µs | {whole:.0f} µs | {up:,} | {down:,} |")
    figures["load_average"] = load_average()
    write_results("gpu_host_cost", figures, "\n".join(lines))


if __name__ == "__main__":
    main()
