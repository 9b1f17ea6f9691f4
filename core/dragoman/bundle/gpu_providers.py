"""ONNX Runtime's execution providers on a GPU, with the options that a bundle's manifest implies.

Part of the contract, because the export fills TensorRT's engine cache and a server reads it: an engine is found again only
by who asks for it with the same providers and options. Pure: onnxruntime itself is not needed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dragoman.bundle.manifest import Manifest, Profile, Role
from dragoman.errors import BundleError

__all__ = [
    "CPU",
    "TENSORRT",
    "Provider",
    "cuda_providers",
    "engine_cache_prefix",
    "tensorrt_providers",
    "usual_shapes",
]

Provider = tuple[str, dict[str, str]]

TENSORRT = "TensorrtExecutionProvider"
CPU: Provider = ("CPUExecutionProvider", {})


def cuda_providers(device_id: int = 0) -> list[Provider]:
    """CUDA, and the CPU for what it can't run."""
    options = {
        "device_id": str(device_id),
        "arena_extend_strategy": "kSameAsRequested",  # the memory contract counts what is asked for, not powers of two
        "cudnn_conv_algo_search": "HEURISTIC",
    }
    return [("CUDAExecutionProvider", options), CPU]


def tensorrt_providers(
    manifest: Manifest, role: Role, *, device_id: int = 0, engine_cache: Path | None = None
) -> list[Provider]:
    """TensorRT for the portable graph of `role`, and CUDA and the CPU for what it can't run."""
    # Neither flag, whatever the precision: with one of them TensorRT may compute in it what the graph keeps in fp32, and
    # without both its network is strongly typed, as in the engines that we build ourselves.
    options = {"device_id": str(device_id), "trt_fp16_enable": "False", "trt_int8_enable": "False"}
    if engine_cache is not None:
        options |= {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": str(engine_cache),
            "trt_engine_cache_prefix": engine_cache_prefix(manifest, role),
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": str(engine_cache),
        }
    if profiles := _profiles(manifest, role):
        options |= _shapes(profiles)
    return [(TENSORRT, options), *cuda_providers(device_id)]


def engine_cache_prefix(manifest: Manifest, role: Role) -> str:
    """What the file names of the role's engines begin with: the model's name, and a digest of graphs and weights.

    What ONNX Runtime appends to it tells graphs apart by the names in them. The weights have no part in that, and a model
    trained further would be served with the engines of the old one.
    """
    others = {*manifest.tokenizer.files.values(), *(engine.file for engine in manifest.engines)}
    held = [f"{record.sha256} {name}" for name, record in sorted(manifest.files.items()) if name not in others]
    digest = hashlib.sha256("\n".join(held).encode()).hexdigest()[:12]
    return f"{manifest.model.name}-{role}-{digest}"


def usual_shapes(manifest: Manifest, role: Role) -> dict[str, tuple[int, ...]]:
    """The shape of each input that ONNX Runtime's engine of `role` is tuned for."""
    if profiles := _profiles(manifest, role):
        return profiles[0].usual
    raise BundleError(f"the bundle lists no shapes for a TensorRT {role}; export it again with --target tensorrt")


def _profiles(manifest: Manifest, role: Role) -> list[Profile]:
    return [profile for engine in manifest.engines if engine.role == role for profile in engine.profiles]


def _shapes(profiles: Sequence[Profile]) -> dict[str, str]:
    """TensorRT builds one engine for the whole range instead of a new one at each shape it has not seen.

    ONNX Runtime has one range where our own engines have several: from the first to the last, tuned for the first.
    """
    bounds = {"min": profiles[0].minimum, "opt": profiles[0].usual, "max": profiles[-1].maximum}
    return {
        f"trt_profile_{bound}_shapes": ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
        for bound, shapes in bounds.items()
    }
