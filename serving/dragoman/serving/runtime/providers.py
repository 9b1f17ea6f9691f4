"""Execution providers of ONNX Runtime for the device that was chosen."""

from __future__ import annotations

from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["Provider", "providers_for"]

Provider = tuple[str, dict[str, str]]

_CPU: Provider = ("CPUExecutionProvider", {})


def providers_for(settings: RuntimeSettings) -> list[Provider]:
    """In order of preference; what CUDA can't run, the CPU does."""
    if settings.device == "cpu":
        return [_CPU]
    options = {
        "device_id": str(settings.device_id),
        "arena_extend_strategy": "kSameAsRequested",  # the memory contract counts what is asked for, not powers of two
        "cudnn_conv_algo_search": "HEURISTIC",
    }
    return [("CUDAExecutionProvider", options), _CPU]
