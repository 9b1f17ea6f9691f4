"""Opens the runtime for a bundle on a device, and imports only its libraries: a GPU needs no ONNX Runtime, a CPU no CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from dragoman.bundle.manifest import Manifest
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["ModelRuntime", "open_runtime"]


class ModelRuntime(Runtime, Protocol):
    """A runtime that knows how much memory it needs."""

    def contract(self, limits: EngineLimits, model: ModelFacts) -> MemoryContract:
        """The memory that an engine with these limits may take."""


def open_runtime(bundle: Path, manifest: Manifest, settings: RuntimeSettings) -> ModelRuntime:
    """The bundle's graphs or engines, checked and ready to run on `settings.device`.

    On a CPU those with custom operators, where the bundle has them; TensorRT's engines are made of the portable ones.
    """
    if settings.device == "tensorrt":
        from dragoman.serving.runtime.tensorrt import TensorRtRuntime

        return TensorRtRuntime(bundle, manifest, settings)
    if settings.device == "cpu" and manifest.graphs_of("native"):
        from dragoman.serving.runtime.native import NativeRuntime

        return NativeRuntime(bundle, manifest, settings)
    from dragoman.serving.runtime.portable import PortableRuntime

    return PortableRuntime(bundle, manifest, settings)
