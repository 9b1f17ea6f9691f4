"""What `make gpu-check` compares: bundles for the GPU that is here, exported when the cache has none."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_facts import gpu_facts
from benchmarks.peers import CACHE

__all__ = ["Setup", "prepared"]

BATCHES = (1, 8, 32, 128)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is compared. `exact` is the fp32 bundle for the device, `fast` the one that would be deployed there.

    `exact` is None where the device has no fp32 products: Turing with TensorRT-RTX.
    """

    device: str
    reference: Path
    exact: Path | None
    fast: Path
    sentences: int = 500
    batches: tuple[int, ...] = BATCHES
    rounds: int = 3
    peer: Path | None = None
    """The checkpoint, for CTranslate2 and Hugging Face; None leaves them out."""
    peer_precision: str = "fp16"
    others: dict[str, Path] = field(default_factory=dict)
    """Bundles of other precisions, whose quality is looked at."""


def prepared(arguments: argparse.Namespace) -> Setup:
    """With bundles that are exported if the cache has none."""
    fast = "fp32" if arguments.device == "cpu" else "fp16"
    is_old = arguments.device == "tensorrt" and not _at_least(gpu_facts().get("compute capability", ""), (8, 0))
    others = {"cpu": (), "cuda": ("int8",), "tensorrt": ("int8",) if is_old else ("int8", "bf16")}[arguments.device]

    def bundle(device: str, precision: str) -> Path:
        return _exported(arguments.model, device, precision)

    return Setup(
        device=arguments.device,
        reference=bundle("cpu", "fp32"),
        exact=None if is_old else bundle(arguments.device, "fp32"),
        fast=bundle(arguments.device, fast),
        sentences=arguments.sentences,
        peer=None if arguments.without_peers else arguments.model,
        peer_precision=fast,
        others={precision: bundle(arguments.device, precision) for precision in others},
    )


def _exported(model: Path, device: str, precision: str) -> Path:
    """The bundle for a device, exported when the cache has none; its engines are built for the GPU that is here."""
    output = CACHE / "gpu-bundles" / f"{model.name}-{device}-{precision}"
    program = shutil.which("dragoman", path=str(Path(sys.executable).parent)) or "dragoman"
    if not output.is_dir():
        output.parent.mkdir(parents=True, exist_ok=True)
        command = [program, "export", str(model), "--output", str(output), "--precision", precision, "--target", device]
        subprocess.run(command, check=True)
    if device == "tensorrt":  # beams of 4 in the largest batch
        build = [program, "build-engines", str(output), "--max-batch", str(4 * max(BATCHES))]
        subprocess.run([*build, *_flavour(gpu_facts().get("compute capability", ""))], check=True)
    return output


def _flavour(capability: str) -> list[str]:
    """What TensorRT-RTX does not know, the standard package builds for."""
    from tensorrt_rtx_bindings import ComputeCapability

    known = f"SM{capability.replace('.', '')}" in ComputeCapability.__members__
    return [] if known or not capability else ["--flavour", "tensorrt"]


def _at_least(capability: str, least: tuple[int, int]) -> bool:
    """Of a GPU that says what it has."""
    return not capability or tuple(map(int, capability.split("."))) >= least
