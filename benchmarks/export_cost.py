"""What an export of an OPUS-MT-sized model costs: time, peak memory and bundle size, each export in a process of its own.

python -m benchmarks.export_cost
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, load_average
from benchmarks.peers import CACHE, ROOT
from benchmarks.random_checkpoint import OPUS_MT, write_random_checkpoint
from benchmarks.results import write_results

__all__ = ["measure_export"]

TIME_GOAL_S = 120.0
MEMORY_GOAL = 4.0  # times the fp32 weights, beside what torch takes by being imported
SIZE_GOAL = 0.35  # int8 of fp32

IMPORTS = """
import resource, torch, onnx, onnxruntime, onnxscript, transformers
from transformers import MarianMTModel
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

EXPORT = """
import json, resource, sys, time
from pathlib import Path
from dragoman.export.pipeline import ExportOptions, export_bundle
checkpoint, output, precision, allowed = sys.argv[1:]
began = time.perf_counter()
report = export_bundle(ExportOptions(Path(checkpoint), Path(output), precision=precision,
                                     max_quality_loss=float(allowed) if allowed else None, force=True))
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time(),
    "stages": report.seconds,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def measure_export(precisions: tuple[str, ...] = ("fp32", "int8")) -> dict[str, Any]:
    """Figures for each precision beside the goals."""
    checkpoint = write_random_checkpoint(OPUS_MT, CACHE / "checkpoints" / OPUS_MT.name)
    weights_bytes = (checkpoint / "model.safetensors").stat().st_size
    imports_bytes = int(_child(IMPORTS))
    exports = {}
    for precision in precisions:
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            bundle = Path(scratch) / "bundle"
            # random weights answer at random: how far int8 strays from fp32 says nothing here
            allowed = "" if precision == "fp32" else "100"
            measured = json.loads(_child(EXPORT, str(checkpoint), str(bundle), precision, allowed))
            measured["bundle_bytes"] = sum(path.stat().st_size for path in bundle.iterdir())
        measured["memory_ratio"] = (measured["peak_bytes"] - imports_bytes) / weights_bytes
        exports[precision] = measured
    return {
        "machine": describe_machine(),
        "load_average": load_average(),
        "model": OPUS_MT.name,
        "weights_bytes": weights_bytes,
        "imports_bytes": imports_bytes,
        "exports": exports,
    }


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    exports = figures["exports"]
    lines = [
        "| precision | time, wall / CPU | peak memory | beyond the imports / weights | bundle | of fp32 |",
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
        f"Weights {figures['weights_bytes'] / 1e6:.0f} MB; importing torch, onnx and transformers alone takes "
        f"{figures['imports_bytes'] / 1e6:.0f} MB. Goals: below {TIME_GOAL_S:.0f} s with verification, at most "
        f"{MEMORY_GOAL:g} times the weights beyond the imports, int8 at most {SIZE_GOAL:.0%} of fp32."
    )
    return "\n".join(lines)


def _child(code: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    found = measure_export()
    write_results("export_cost", found, table(found))
