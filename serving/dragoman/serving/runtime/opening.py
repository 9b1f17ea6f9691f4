"""The runtime for a device. Its libraries are imported only then: a GPU needs no ONNX Runtime, a CPU no CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from dragoman.bundle.manifest import Manifest
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["ModelRuntime", "open_runtime"]


class ModelRuntime(Runtime, Protocol):
    """A runtime that knows what it costs."""

    def contract(self, limits: EngineLimits, model: ModelFacts) -> MemoryContract:
        """What an engine with these limits may take."""


def open_runtime(bundle: Path, manifest: Manifest, settings: RuntimeSettings) -> ModelRuntime:
    """The bundle's graphs or engines, checked and ready to run on `settings.device`."""
    if settings.device == "tensorrt":
        from dragoman.serving.runtime.tensorrt import TensorRtRuntime

        return TensorRtRuntime(bundle, manifest, settings)
    from dragoman.serving.runtime.onnxruntime import OnnxRuntime

    return OnnxRuntime(bundle, manifest, settings)
