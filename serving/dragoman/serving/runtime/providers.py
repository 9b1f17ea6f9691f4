"""Execution providers of ONNX Runtime for the device that was chosen."""

from __future__ import annotations

from dragoman.bundle.gpu_providers import CPU, Provider, cuda_providers, tensorrt_providers
from dragoman.bundle.manifest import Manifest, Role
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["providers_for"]


def providers_for(settings: RuntimeSettings, manifest: Manifest, role: Role) -> list[Provider]:
    """In order of preference; what one can't run, the next does."""
    if settings.device == "cpu":
        return [CPU]
    if settings.device == "cuda":
        return cuda_providers(settings.device_id)
    return tensorrt_providers(manifest, role, device_id=settings.device_id, engine_cache=settings.engine_cache)
