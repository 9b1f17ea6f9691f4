"""The Python bindings of TensorRT: `tensorrt_rtx_bindings`, or `tensorrt` for GPUs that TensorRT-RTX does not support.

Both have the same classes. The features of TensorRT-RTX alone are here: checking an engine before it is loaded, capturing
CUDA graphs, and caching the kernels compiled for this GPU.
"""

# ruff: noqa: ANN401 - the bindings have no types

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.bundle.manifest import EngineFile, Manifest, Role, TensorSpec
from dragoman.errors import BundleError, ServeError
from dragoman.serving.runtime.tensorrt.device import Gpu
from dragoman.serving.runtime.tensorrt.kernels import CompiledKernels

__all__ = ["MODULES", "Bindings", "engines_of", "import_cuda"]

MODULES = {"tensorrt_rtx": "tensorrt_rtx_bindings", "tensorrt": "tensorrt"}
_EXTRAS = {"tensorrt_rtx": "tensorrt", "tensorrt": "tensorrt-standard"}
_DATA_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16", "int64": "INT64", "int32": "INT32"}
_OLDEST = (7, 5)

Import = Callable[[str], Any]


def import_cuda(importing: Import = importlib.import_module) -> tuple[Any, Any]:
    """The modules `cuda.bindings.runtime` and `cuda.bindings.driver`."""
    runtime, driver = (_imported(f"cuda.bindings.{name}", "tensorrt", importing) for name in ("runtime", "driver"))
    return runtime, driver


def engines_of(manifest: Manifest, bundle: Path) -> dict[Role, EngineFile]:
    """The engine of each role; BundleError that says how to build missing ones."""
    engines: dict[Role, EngineFile] = {engine.role: engine for engine in manifest.engines}
    if {"encoder", "decoder"} <= set(engines):
        taken = {spec.name for spec in manifest.graph("decoder", "portable").inputs}
        if "scored_tokens" not in taken:
            raise BundleError(
                f"{bundle} was exported by dragoman {manifest.dragoman_version}, whose graphs take less than this version "
                "gives them; export the checkpoint again"
            )
        return engines
    if any(graph.lowering == "portable" for graph in manifest.graphs):
        raise BundleError(f"{bundle} has no TensorRT engines; build them, on any machine: dragoman build-engines {bundle}")
    raise BundleError(f"{bundle} has no TensorRT engines and no graphs to build them from; export it with --target tensorrt")


class Bindings:
    """One flavour of TensorRT."""

    def __init__(self, flavour: str, importing: Import = importlib.import_module) -> None:
        self.flavour, self.is_rtx = flavour, flavour == "tensorrt_rtx"
        self._trt = _imported(MODULES[flavour], _EXTRAS[flavour], importing)
        self.version = str(self._trt.__version__)
        self._logger = self._trt.Logger(self._trt.Logger.WARNING)
        self._runtime = self._trt.Runtime(self._logger)

    def rebuild(self, bundle: Path) -> str:
        """The advice for an engine that does not run here."""
        flag = "" if self.is_rtx else " --flavour tensorrt"
        return f"build it anew, which takes seconds: dragoman build-engines {bundle}{flag}"

    def load(self, bundle: Path, entry: EngineFile, device: Gpu) -> Any:
        """The engine on the GPU; BundleError when it was built for another release or for another GPU."""
        if entry.version != self.version:
            raise BundleError(
                f"{entry.file} was built by {entry.flavour} {entry.version}, and {self.version}, which is installed, can't "
                f"run it; {self.rebuild(bundle)}"
            )
        if device.compute_capability not in entry.compute_capabilities:
            raise BundleError(
                f"{entry.file} was built for compute capability {', '.join(entry.compute_capabilities)}, and GPU "
                f"{device.number} has {device.compute_capability}; {self._for_this_gpu(bundle, entry, device)}"
            )
        plan = (bundle / entry.file).read_bytes()
        if len(plan) > (free_bytes := device.free_bytes()):
            raise ServeError(
                f"GPU {device.number} has {free_bytes / 2**20:,.0f} MiB free, and {entry.file} alone has "
                f"{len(plan) / 2**20:,.0f} MiB; end what else runs there, or choose another GPU with --gpu"
            )
        if self.is_rtx:  # looks at the header only, so that a foreign engine is never executed
            validity, why = self._runtime.get_engine_validity(plan)
            if validity == self._trt.EngineValidity.INVALID:
                raise BundleError(f"{entry.file} can't run on GPU {device.number}: {self._why(why)}; {self.rebuild(bundle)}")
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise BundleError(f"TensorRT {self.version} can't load {entry.file}; {self.rebuild(bundle)}")
        return engine

    def _why(self, diagnostics: Any) -> str:
        """The names of the bits that are set."""
        members = self._trt.EngineInvalidityDiagnostics.__members__
        named = [name.lower().replace("_", " ") for name, bit in members.items() if int(diagnostics) & int(bit)]
        return ", ".join(named) or "TensorRT gives no reason"

    def _for_this_gpu(self, bundle: Path, entry: EngineFile, device: Gpu) -> str:
        capability = device.compute_capability
        if fitting := device.others(entry.compute_capabilities):
            return f"--gpu {fitting[0]} can run it, or {self.rebuild(bundle)}"
        if tuple(map(int, capability.split("."))) < _OLDEST:
            return "no current TensorRT supports it: take a GPU of 7.5 or newer, or serve with --device cpu"
        if self.is_rtx and f"SM{capability.replace('.', '')}" not in self._trt.ComputeCapability.__members__:
            return (
                "TensorRT-RTX does not know this GPU: pip install 'dragoman[tensorrt-standard]', and on this machine: "
                f"dragoman build-engines {bundle} --flavour tensorrt"
            )
        return self.rebuild(bundle)

    def check_tensor(self, engine: Any, spec: TensorSpec, way_out: str) -> None:
        """BundleError when the engine's tensor is not what the manifest says."""
        wanted, found = getattr(self._trt.DataType, _DATA_TYPES[spec.dtype]), engine.get_tensor_dtype(spec.name)
        if found != wanted or engine.get_tensor_location(spec.name) != self._trt.TensorLocation.DEVICE:
            raise BundleError(f"{spec.name} is {found} in the engine and {spec.dtype} in the manifest; {way_out}")

    def runtime_config(self, engine: Any, *, capture: bool, kernels: Path | None) -> tuple[Any, CompiledKernels | None]:
        """How its contexts run: on memory that we give them, captured as CUDA graphs where that pays.

        `kernels` is a file for what is compiled; None, or the standard package, which compiles nothing: none is kept.
        """
        config = engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(self._trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if self.is_rtx:
            graphs = self._trt.CudaGraphStrategy
            config.cuda_graph_strategy = graphs.WHOLE_GRAPH_CAPTURE if capture else graphs.DISABLED
            # A kernel for exactly these shapes comes when it is compiled; a general one runs until then.
            config.dynamic_shapes_kernel_specialization_strategy = self._trt.DynamicShapesKernelSpecializationStrategy.LAZY
            compiled = config.create_runtime_cache()  # all contexts share what was compiled
            config.set_runtime_cache(compiled)
            if kernels is not None:
                kept = CompiledKernels(compiled, kernels)
                kept.load()
                return config, kept
        return config, None

    def context(self, engine: Any, config: Any, profile: int, device: Gpu) -> Any:
        context = engine.create_execution_context(config)
        if context is None or not context.set_optimization_profile_async(profile, int(device.stream)):
            raise ServeError(f"TensorRT can't make an execution context for profile {profile}; is the GPU's memory full?")
        return context


def _imported(module: str, extra: str, importing: Import) -> Any:
    try:
        return importing(module)
    except (ImportError, OSError) as error:
        raise ServeError(
            f"device='tensorrt' needs the Python package {module}, which can't be loaded ({error}): "
            f"pip install 'dragoman[{extra}]'"
        ) from error
