"""Engines and execution contexts: an engine is the ONNX graph that it was built from."""

from __future__ import annotations

import enum
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime

from dragoman.bundle.manifest import EngineFile, Graph
from gpu_double.cuda import CudaDouble, Fault, view


class DataType(enum.Enum):
    FLOAT = "float32"
    HALF = "float16"
    BF16 = "bfloat16"
    INT32 = "int32"
    INT64 = "int64"


def scratch_needed(shapes: dict[str, tuple[int, ...]]) -> int:
    """Grows with every dimension, as a real engine's does."""
    return 512 + 8 * sum(int(np.prod(shape)) for name, shape in shapes.items() if not name.startswith(("self_", "cross_")))


class ContextDouble:
    """IExecutionContext."""

    def __init__(self, engine: EngineDouble, config: StandardRuntimeConfigDouble) -> None:
        self.engine, self.config = engine, config
        engine.check_device()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.at: dict[str, int] = {}
        self.profile: int | None = None
        self.scratch: tuple[int, int] = (0, 0)
        self.sized: dict[str, tuple[int, ...]] = {}
        self.captured: set[tuple] = set()  # what a CUDA graph was captured for

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.engine.cuda.check_stream(stream_handle)
        if isinstance(self.config, RuntimeConfigDouble) and profile_index not in self.config.cache.compiled:
            self.engine.compilations += 1
            self.config.cache.compiled.add(profile_index)
        assert self.profile is None, "switching profiles copies, and invalidates shapes: a context has one"
        self.profile = profile_index
        return 0 <= profile_index < self.engine.num_optimization_profiles

    def set_device_memory(self, memory: int, size: int) -> None:
        self.engine.cuda.memory(memory, size, "device")
        if memory % 256:
            raise Fault("scratch memory does not begin at a multiple of 256")
        self.scratch = memory, size

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert self.profile is not None
        profile = self.engine.entry.profiles[self.profile]
        limits = zip(profile.minimum[name], shape, profile.maximum[name], strict=True)
        if any(not least <= size <= most for least, size, most in limits):
            return False
        self.shapes[name] = tuple(shape)
        return True

    def infer_shapes(self) -> list[str]:
        return [name for name in self.engine.inputs if name not in self.shapes]

    def update_device_memory_size_for_shapes(self) -> int:
        self.sized, self.scratch = dict(self.shapes), (0, 0)  # it is laid out anew
        return scratch_needed(self.shapes)

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.at[name] = memory
        return name in self.engine.inputs | self.engine.outputs

    def execute_async_v3(self, stream_handle: int) -> bool:
        engine, cuda = self.engine, self.engine.cuda
        engine.check_device()
        if self.sized != self.shapes:
            raise Fault("the memory that these shapes need was never asked for")
        shapes = self._all_shapes()
        spans = {name: (self.at[name], self._bytes(name, shapes[name])) for name in shapes}
        for name, (start, size) in spans.items():
            cuda.memory(start, size, "device")
            if start % 256:
                raise Fault(f"{name} does not begin at a multiple of 256")
        scratch = cuda.memory(*self.scratch, "device")
        if self.scratch[1] < scratch_needed(self.shapes):
            raise Fault("too little scratch memory")
        spans["scratch"] = self.scratch
        for output in (*engine.outputs, "scratch"):
            for other, (start, size) in spans.items():
                if other != output and max(start, spans[output][0]) < min(start + size, sum(spans[output])):
                    raise Fault(f"{output} overlaps {other}")
        at = dict(self.at)

        def work() -> None:
            scratch.poison()
            feeds = {name: _computable(view(at[name], shapes[name], spec.dtype)) for name, spec in engine.inputs.items()}
            self._check_feeds(feeds)
            found = engine.session.run(list(engine.outputs), feeds)
            for (name, spec), value in zip(engine.outputs.items(), found, strict=True):
                assert value.shape == shapes[name], (name, value.shape, shapes[name])
                view(at[name], shapes[name], spec.dtype)[...] = value

        cuda.enqueue(work, stream_handle)
        cuda.launches += 1
        if getattr(self.config, "cuda_graph_strategy", None) == "WHOLE_GRAPH_CAPTURE":
            key = (*sorted(shapes.items()), *sorted(at.items()), self.scratch)
            engine.replays += key in self.captured
            self.captured.add(key)
        return True

    def _all_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of inputs and outputs; Fault when inputs disagree about a named dimension."""
        sizes: dict[str, int] = {}
        for name, spec in self.engine.inputs.items():
            for dimension, size in zip(spec.shape, self.shapes[name], strict=True):
                if (sizes.setdefault(dimension, size) if isinstance(dimension, str) else dimension) != size:
                    raise Fault(f"{name} is {self.shapes[name]}, but {dimension} is {sizes.get(dimension, dimension)}")
        outputs = {
            name: tuple(size if isinstance(size, int) else sizes[size] for size in spec.shape)
            for name, spec in self.engine.outputs.items()
        }
        return self.shapes | outputs

    def _bytes(self, name: str, shape: tuple[int, ...]) -> int:
        spec = (self.engine.inputs | self.engine.outputs)[name]
        return int(np.prod(shape)) * np.dtype(spec.dtype).itemsize

    def _check_feeds(self, feeds: dict[str, np.ndarray]) -> None:
        """A gather out of bounds reads foreign memory on a GPU; ONNX Runtime would say so, but not all of it."""
        for name in ("source_ids", "tokens", "targets", "scored_tokens", "target_positions"):
            if name in feeds and feeds[name].min() < 0:
                raise Fault(f"{name} holds numbers that nobody wrote")
        if "target_positions" in feeds:
            assert feeds["target_positions"].max() < feeds["tokens"].shape[1], "a position that was not fed"
        if "parents" in feeds:
            assert feeds["parents"].min() >= 0
            assert feeds["parents"].max() < len(feeds["self_key_0"]), "a parent is no row of the past"
        lengths = feeds["source_lengths"]
        longest = feeds["source_ids" if "source_ids" in feeds else "cross_key_0"].shape[1 if "source_ids" in feeds else 2]
        assert lengths.min() >= 1, "a source without tokens"
        assert lengths.max() <= longest, "a source that is longer than its cache"
        for name, value in feeds.items():
            if name.startswith(("self_", "cross_")) and not np.isfinite(value).all():
                raise Fault(f"{name} holds numbers that nobody wrote")


class StandardRuntimeConfigDouble:
    """IRuntimeConfig of the standard package."""

    strategy = "STATIC"

    def set_execution_context_allocation_strategy(self, strategy: str) -> None:
        self.strategy = strategy


class RuntimeCacheDouble:
    """IRuntimeCache: knows the kernels of the contexts that were made with it."""

    def __init__(self, engine: EngineDouble) -> None:
        self.engine = engine
        self.compiled: set[int] = set()

    def serialize(self) -> bytes:
        self.engine.check_device()
        return bytes(sorted(self.compiled))

    def deserialize(self, blob: bytes) -> bool:
        self.engine.check_device()
        if any(profile >= self.engine.num_optimization_profiles for profile in blob):
            return False
        self.compiled |= set(blob)
        return True


class RuntimeConfigDouble(StandardRuntimeConfigDouble):
    """IRuntimeConfig."""

    cuda_graph_strategy = "DISABLED"
    dynamic_shapes_kernel_specialization_strategy = "LAZY"

    def __init__(self, engine: EngineDouble) -> None:
        self.engine = engine
        self.cache = RuntimeCacheDouble(engine)

    def create_runtime_cache(self) -> RuntimeCacheDouble:
        return RuntimeCacheDouble(self.engine)

    def set_runtime_cache(self, cache: RuntimeCacheDouble) -> bool:
        self.cache = cache
        return True


class EngineDouble:
    """ICudaEngine."""

    context_type: type[ContextDouble] = ContextDouble

    def __init__(self, cuda: CudaDouble, bundle: Path, entry: EngineFile, graph: Graph) -> None:
        self.cuda, self.entry, self.graph = cuda, entry, graph
        self.device = cuda.device  # where it was loaded; it runs nowhere else
        self.inputs = {spec.name: spec for spec in graph.inputs}
        self.outputs = {spec.name: spec for spec in graph.outputs}
        self.session = _session(bundle / graph.file, graph)
        self.num_optimization_profiles = len(entry.profiles)
        self.compilations = 0
        self.replays = 0  # runs that repeated a captured CUDA graph
        self.contexts: list[ContextDouble] = []

    def check_device(self) -> None:
        if self.cuda.device != self.device:
            raise Fault(f"an engine of GPU {self.device}, while this thread means GPU {self.cuda.device}")

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType((self.inputs | self.outputs)[name].dtype)

    def get_tensor_location(self, name: str) -> str:
        return "DEVICE"

    def create_runtime_config(self) -> StandardRuntimeConfigDouble:
        return RuntimeConfigDouble(self) if self.entry.flavour == "tensorrt_rtx" else StandardRuntimeConfigDouble()

    def create_execution_context(self, runtime_config: StandardRuntimeConfigDouble) -> ContextDouble:
        assert runtime_config.strategy == "USER_MANAGED"
        self.contexts.append(self.context_type(self, runtime_config))
        return self.contexts[-1]


def _session(path: Path, graph: Graph) -> onnxruntime.InferenceSession:
    """bfloat16 is computed as the verification does."""
    if any(spec.dtype == "bfloat16" for spec in (*graph.inputs, *graph.outputs)):
        from dragoman.export.verification.sessions import opened

        return opened(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _computable(array: np.ndarray) -> np.ndarray:
    """A copy, of bfloat16 as float32."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array.copy()
