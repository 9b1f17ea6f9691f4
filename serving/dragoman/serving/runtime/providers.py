"""Execution providers of ONNX Runtime for a device, with the options that a bundle's manifest implies."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.bundle.manifest import Manifest, Profile, Role
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["Provider", "providers_for"]

Provider = tuple[str, dict[str, str]]

_CPU: Provider = ("CPUExecutionProvider", {})


def providers_for(settings: RuntimeSettings, manifest: Manifest, role: Role) -> list[Provider]:
    """In order of preference; what one can't run, the next does."""
    if settings.device == "cpu":
        return [_CPU]
    cuda: Provider = (
        "CUDAExecutionProvider",
        {
            "device_id": str(settings.device_id),
            "arena_extend_strategy": "kSameAsRequested",  # the memory contract counts what is asked for, not powers of two
            "cudnn_conv_algo_search": "HEURISTIC",
        },
    )
    if settings.device == "cuda":
        return [cuda, _CPU]
    return [("TensorrtExecutionProvider", _tensorrt(settings, manifest, role)), cuda, _CPU]


def _tensorrt(settings: RuntimeSettings, manifest: Manifest, role: Role) -> dict[str, str]:
    options = {
        "device_id": str(settings.device_id),
        "trt_fp16_enable": str(manifest.precision == "fp16"),
        "trt_int8_enable": str(manifest.precision == "int8"),
    }
    if settings.engine_cache is not None:
        options |= {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": str(settings.engine_cache),
            "trt_engine_cache_prefix": f"{manifest.model.name}-{role}",
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": str(settings.engine_cache),
        }
    profiles = [profile for engine in manifest.engines if engine.role == role for profile in engine.profiles]
    if profiles:
        options |= _shapes(profiles)
    return options


def _shapes(profiles: Sequence[Profile]) -> dict[str, str]:
    """TensorRT builds one engine for the whole range instead of a new one at each shape it has not seen.

    ONNX Runtime has one range where our own engines have several: from the first to the last, tuned for the first.
    """
    bounds = {"min": profiles[0].minimum, "opt": profiles[0].usual, "max": profiles[-1].maximum}
    return {
        f"trt_profile_{bound}_shapes": ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
        for bound, shapes in bounds.items()
    }
