"""What an export costs: time, peak memory and bundle size, each export in a process of its own.

python -m benchmarks.export_cost
python -m benchmarks.export_cost --model random-nllb-600m --target-tokens 24
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.peers import CACHE, ROOT
from benchmarks.random_checkpoint import OPUS_MT, write_random_checkpoint
from benchmarks.random_families import FAMILY_SHAPES, write_random_family
from benchmarks.results import write_results

__all__ = ["measure_export"]

MEMORY_GOAL, LIBRARIES_BYTES = 1.5, 1 << 30
"""Peak memory may be so many times the weights in fp32, and what torch and the others take by being imported."""
SIZE_GOAL = 0.28  # int8 of fp32

IMPORTS = """
import resource, torch, onnx, onnxruntime, onnxscript, transformers
from transformers import MarianMTModel
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

EXPORT = """
import json, resource, sys, time
from pathlib import Path
from dragoman.export.checkpoint import TokenLimits
from dragoman.export.pipeline import ExportOptions, export_bundle
checkpoint, output, precision, allowed, target_tokens = sys.argv[1:]
began = time.perf_counter()
report = export_bundle(ExportOptions(Path(checkpoint), Path(output), precision=precision,
                                     max_quality_loss=float(allowed) if allowed else None, force=True,
                                     limits=TokenLimits(None, int(target_tokens) or None)))
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time(),
    "stages": report.seconds,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def measure_export(model: str, target_tokens: int, precisions: tuple[str, ...] = ("fp32", "int8")) -> dict[str, Any]:
    """Figures for each precision beside the goals. Random weights end no sentence: `target_tokens` does (0: 96)."""
    checkpoint = CACHE / "checkpoints" / model
    if model in FAMILY_SHAPES:
        write_random_family(FAMILY_SHAPES[model], checkpoint)
    else:
        write_random_checkpoint(OPUS_MT, checkpoint)
    weights_bytes = (checkpoint / "model.safetensors").stat().st_size
    imports_bytes = int(_child(IMPORTS))
    exports = {}
    for precision in precisions:
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            bundle = Path(scratch) / "bundle"
            # random weights answer at random: how far int8 strays from fp32 says nothing here
            allowed = "" if precision == "fp32" else "100"
            measured = json.loads(_child(EXPORT, str(checkpoint), str(bundle), precision, allowed, str(target_tokens)))
            measured["bundle_bytes"] = sum(path.stat().st_size for path in bundle.iterdir())
        measured["memory_ratio"] = (measured["peak_bytes"] - LIBRARIES_BYTES) / weights_bytes
        exports[precision] = measured
    return {
        "machine": describe_machine(),
        "load_average": load_average(),
        "model": model,
        "target_tokens": target_tokens,
        "weights_bytes": weights_bytes,
        "imports_bytes": imports_bytes,
        "exports": exports,
    }


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    exports = figures["exports"]
    lines = [
        "| precision | time, wall / CPU | peak memory | beyond 1 GiB / weights | bundle | of fp32 |",
        "|---|---|---|---|---|---|",
    ]
    for precision, export in exports.items():
        share = export["bundle_bytes"] / exports["fp32"]["bundle_bytes"] if "fp32" in exports else float("nan")
        lines.append(
            f"| {precision} | {export['seconds']:.0f} s / {export['cpu_seconds']:.0f} s "
            f"| {export['peak_bytes'] / 1e6:.0f} MB | {export['memory_ratio']:.1f} "
            f"| {export['bundle_bytes'] / 1e6:.0f} MB | {share:.0%} |"
        )
    lines.append("")
    lines.append(
        f"{figures['model']}: weights of {figures['weights_bytes'] / 1e6:.0f} MB in fp32; importing torch, onnx and "
        f"transformers alone takes {figures['imports_bytes'] / 1e6:.0f} MB. Goals: a peak of at most {MEMORY_GOAL:g} times "
        f"the weights and 1 GiB, with verification; int8 at most {SIZE_GOAL:.0%} of fp32."
    )
    return "\n".join(lines)


def _child(code: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[OPUS_MT.name, *FAMILY_SHAPES], default=OPUS_MT.name)
    parser.add_argument("--target-tokens", type=int, default=0, metavar="N", help="longest target (default: the model's)")
    given = parser.parse_args()
    found = measure_export(given.model, given.target_tokens)
    name = "export_cost" if given.model == OPUS_MT.name else f"export_cost_{given.model.removeprefix('random-')}"
    write_results(name, found, table(found))


if __name__ == "__main__":
    main()
