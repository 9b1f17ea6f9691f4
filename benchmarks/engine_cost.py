"""What TensorRT engines cost to build: time, memory of the builder, and size, for families in the sizes that people use.

python -m benchmarks.engine_cost random-58k random-t5-base --precision fp16 --precision bf16
python -m benchmarks.engine_cost random-nllb-600m --layers 3

Weights are random, so nothing is calibrated or verified: the ranges of int8 are made up, fp16 keeps no layer in fp32.
No GPU is needed: engines are built for compute capability 8.6, with the limits of a server's defaults.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.peers import CACHE, ROOT
from benchmarks.random_checkpoint import OPUS_MT, REFERENCE, write_random_checkpoint
from benchmarks.random_families import BUILT_SHAPES, write_random_family
from benchmarks.results import read_results, write_results

BUILD = """
import json, resource, sys, time
from pathlib import Path
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.graphs import build_graphs
from dragoman.export.lowering import Calibration
from dragoman.export.progress import QuietStages
from dragoman.export.tensorrt import BuildOptions, build_engines
from dragoman.export.transformer.linear import Linear
from dragoman.export.transformer.model import OutputProjection
checkpoint, output, precision = read_checkpoint(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3]
linear = [name for name, one in checkpoint.model.named_modules() if isinstance(one, (Linear, OutputProjection))]
calibration = Calibration((), dict.fromkeys(linear, 8.0) if precision == "int8" else {})
started = time.monotonic()
graphs = build_graphs(checkpoint, ("portable",), precision, output, lambda share: None, calibration=calibration)
checkpoint.weights.release()
options = BuildOptions(compute_capabilities=("8.6",))
built = build_engines(output, graphs, dimensions=checkpoint.dimensions, precision=precision, options=options,
                      stages=QuietStages())
print(json.dumps({
    "engines": {one.role: {"seconds": one.build_seconds, "bytes": (output / one.file).stat().st_size} for one in built},
    "seconds": time.monotonic() - started,
    "parameters": checkpoint.card.parameters,
    "weights_bytes": (output / "weights.bin").stat().st_size,
    "builder_peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
}))
"""
LAYERS = ("encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers")


def checkpoint_of(name: str, layers: int | None) -> Path:
    """The reference model, or a random one of that shape."""
    if name == "reference":
        return REFERENCE
    if name == OPUS_MT.name:
        return write_random_checkpoint(OPUS_MT, CACHE / "checkpoints" / name)
    shape = BUILT_SHAPES[name]
    if layers is not None:
        sizes = {size: layers if size in LAYERS else value for size, value in shape.sizes.items()}
        shape = replace(shape, name=f"{name}-{layers}-layers", sizes=sizes)
    return write_random_family(shape, CACHE / "checkpoints" / shape.name)


def measured(checkpoint: Path, precision: str) -> dict[str, Any]:
    """Graphs and engines, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        command = [sys.executable, "-W", "ignore", "-c", BUILD, str(checkpoint), scratch, precision]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**figures, "load_average": load_average()}


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        "| model | parameters | precision | encoder | decoder | forced | builder's memory | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in figures["builds"].items():
        model, precision = name.rsplit(" ", 1)
        engines = " | ".join(
            f"{one['engines'][role]['bytes'] / 1e6:.1f} MB, {one['engines'][role]['seconds']:.1f} s"
            for role in ("encoder", "decoder", "forced")
        )
        lines.append(
            f"| {model} | {one['parameters'] / 1e6:.1f} M | {precision} | {engines} "
            f"| {one['builder_peak_bytes'] / 1e9:.1f} GB | {one['load_average']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and add to what was measured before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=["reference", OPUS_MT.name, *BUILT_SHAPES])
    parser.add_argument("--precision", action="append", choices=["fp32", "fp16", "bf16", "int8"])
    parser.add_argument("--layers", type=int, help="of each side, where the whole model takes too long")
    arguments = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in arguments.models:
        checkpoint = checkpoint_of(name, arguments.layers)
        for precision in arguments.precision or ["fp16"]:
            figures = read_results("engine_cost") or {"builds": {}}
            figures["machine"] = describe_machine()
            figures["builds"][f"{checkpoint.name} {precision}"] = measured(checkpoint, precision)
            write_results("engine_cost", figures, table(figures))


if __name__ == "__main__":
    main()
