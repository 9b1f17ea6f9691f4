"""The modules `tensorrt` and `tensorrt_rtx_bindings`, as far as the runtime uses them."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import EngineFile, Graph, Manifest
from gpu_double.cuda import CudaDouble
from gpu_double.engines import DataType, EngineDouble

VERSION, STANDARD_VERSION = "1.7.1.116", "11.4.0.106"


class StandardRuntimeDouble:
    """Runtime of the standard package: knows the engines of the bundles that it was told of."""

    def __init__(self, logger: object) -> None:
        self.owner: StandardDouble

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> EngineDouble | None:
        known = self.owner.known.get(bytes(serialized_engine))
        if known is None:
            return None
        engine = EngineDouble(self.owner.cuda, *known)
        self.owner.engines[engine.graph.role] = engine
        return engine


class RuntimeDouble(StandardRuntimeDouble):
    """Runtime."""

    def get_engine_validity(self, buffer: bytes) -> tuple[str, int]:
        return self.owner.validity


def _names(*names: str) -> Any:
    return types.SimpleNamespace(**{name: name for name in names}, __members__=dict.fromkeys(names))


class StandardDouble:
    """The module `tensorrt`. `know` tells it which graph an engine file stands for."""

    __version__ = STANDARD_VERSION
    DataType = DataType
    TensorLocation = _names("DEVICE", "HOST")
    ExecutionContextAllocationStrategy = _names("STATIC", "ON_PROFILE_CHANGE", "USER_MANAGED")

    class Logger:
        WARNING = 2

        def __init__(self, min_severity: int) -> None:
            pass

    def __init__(self, cuda: CudaDouble) -> None:
        self.cuda = cuda
        self.known: dict[bytes, tuple[Path, EngineFile, Graph]] = {}
        self.engines: dict[str, EngineDouble] = {}
        self.validity: tuple[str, int] = ("VALID", 0)

    def know(self, bundle: Path, manifest: Manifest) -> None:
        for entry in manifest.engines:
            graph = manifest.graph(entry.role, "portable")
            self.known[(bundle / entry.file).read_bytes()] = bundle, entry, graph

    def Runtime(self, logger: object) -> StandardRuntimeDouble:
        assert self.cuda.device >= 0
        runtime = self._runtime(logger)
        runtime.owner = self
        return runtime

    _runtime: type[StandardRuntimeDouble] = StandardRuntimeDouble


class TensorRtDouble(StandardDouble):
    """The module `tensorrt_rtx_bindings`."""

    __version__ = VERSION
    EngineValidity = _names("VALID", "SUBOPTIMAL", "INVALID")
    CudaGraphStrategy = _names("DISABLED", "WHOLE_GRAPH_CAPTURE")
    DynamicShapesKernelSpecializationStrategy = _names("LAZY", "EAGER", "NONE")
    ComputeCapability = _names("SM75", "SM80", "SM86", "SM89", "SM120", "SM121")

    class EngineInvalidityDiagnostics(enum.IntFlag):
        VERSION_MISMATCH = 1
        UNSUPPORTED_CC = 2
        OLD_CUDA_DRIVER = 4

    _runtime = RuntimeDouble


def importing_doubles(cuda: CudaDouble, trt: StandardDouble) -> Callable[[str], Any]:
    """What the runtime imports its libraries with."""
    bindings = "tensorrt_rtx_bindings" if isinstance(trt, TensorRtDouble) else "tensorrt"
    modules = {"cuda.bindings.runtime": cuda, "cuda.bindings.driver": cuda.driver, bindings: trt}

    def importing(name: str) -> Any:
        if name not in modules:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return modules[name]

    return importing
