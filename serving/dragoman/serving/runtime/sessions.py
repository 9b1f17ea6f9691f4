"""ONNX Runtime sessions of a bundle's graphs. The only module that imports onnxruntime."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Graph, Lowering, Manifest, StoredTensor
from dragoman.errors import BundleError, ServeError
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts, memory_contract
from dragoman.serving.runtime.providers import providers_for
from dragoman.serving.runtime.settings import LARGE_WEIGHT_BYTES, RuntimeSettings

__all__ = ["BundleSessions", "LazySession", "ort_value", "weight_bytes"]


class BundleSessions:
    """Encoder and decoder of one lowering, checked and opened."""

    def __init__(
        self,
        bundle: Path,
        manifest: Manifest,
        lowering: Lowering,
        settings: RuntimeSettings,
        *,
        threads: int,
        operators: Path | None = None,
    ) -> None:
        """`operators` is a library of custom operators that the graphs need."""
        if manifest.precision == "bf16":
            raise BundleError(f"{bundle} is in bf16, which only --device tensorrt runs; export it in fp32 or int8")
        check_files(bundle, manifest)
        self._bundle, self._manifest, self._settings = bundle, manifest, settings
        self._threads, self._operators = threads, operators
        self._graphs = {graph.role: graph for graph in manifest.graphs_of(lowering)}
        encoder_graph, self.decoder_graph = manifest.graph("encoder", lowering), manifest.graph("decoder", lowering)
        # Sessions do not own shared weights: they are kept here for as long as the sessions exist.
        self._shared = _shared_weights(bundle, manifest, tuple(self._graphs.values())) if settings.device == "cpu" else {}
        self.encoder, self.decoder = self._opened(encoder_graph), self._opened(self.decoder_graph)
        self.encoder_outputs = [spec.name for spec in encoder_graph.outputs]

    @property
    def forced(self) -> LazySession | None:
        """Forced decoding; None in a bundle of an earlier version."""
        graph = self._graphs.get("forced")
        return None if graph is None else LazySession(lambda: self._opened(graph))

    @property
    def forced_candidates(self) -> int | None:
        """The most candidates that the graph of forced decoding gives."""
        return self._graphs["forced"].max_candidates

    def forced_takes(self, name: str) -> bool:
        """Whether the graph of forced decoding has this input: older ones have fewer."""
        return any(given.name == name for given in self._graphs["forced"].inputs)

    def layout(self, cache_input: str) -> CacheLayout:
        """The layout of the KV cache that the decoder takes as `cache_input`."""
        sizes = self._manifest.dimensions
        dtype = next(spec.dtype for spec in self.decoder_graph.inputs if spec.name == cache_input)
        return CacheLayout(sizes.decoder_layers, sizes.heads, sizes.head_dim, dtype)

    def contract(self, limits: EngineLimits, model: ModelFacts, layout: CacheLayout, cache_copies: int) -> MemoryContract:
        """What an engine with these limits may take."""
        files = self._manifest.files.items()
        weights = 2 * sum(record.bytes for name, record in files if name.endswith((".bin", ".onnx")))  # read, and packed
        widest = 4 * self._manifest.dimensions.d_model
        return memory_contract(limits, model, layout, weights, widest, cache_copies=cache_copies)

    def _opened(self, graph: Graph) -> Any:  # noqa: ANN401 - onnxruntime has no types
        providers, device = providers_for(self._settings), self._settings.device
        wanted = providers[0][0]
        if wanted not in onnxruntime.get_available_providers():
            raise ServeError(
                f"this ONNX Runtime ({onnxruntime.__version__}) has no {wanted}, which device={device!r} "
                "needs; install onnxruntime-gpu, or serve with device='cpu'"
            )
        options = _options(self._settings, self._threads)
        # A memory plan makes a small model's short calls up to 4% faster. A large model gains nothing, and its peak
        # grows: a call's memory is then one piece that the arena must find.
        options.enable_mem_pattern = weight_bytes(graph) <= LARGE_WEIGHT_BYTES
        if self._operators is not None:
            options.register_custom_ops_library(str(self._operators))
        for name, tensor in self._shared.items():
            options.add_initializer(name, tensor)
        try:
            session = onnxruntime.InferenceSession(str(self._bundle / graph.file), options, providers=providers)
        except Exception as error:
            raise BundleError(
                f"ONNX Runtime can't open {graph.file} of the bundle, exported by dragoman "
                f"{self._manifest.dragoman_version} (if an operator is not known here, export the checkpoint again): {error}"
            ) from error
        # A provider that does not find its libraries or its device is left out with a warning, and the CPU takes its place.
        if wanted not in session.get_providers():
            raise ServeError(
                f"ONNX Runtime ({onnxruntime.__version__}) could not start {wanted}, which device={device!r} needs: its "
                "libraries (docs/gpu.md) or the device are not found; its own message stands above"
            )
        return session


class LazySession:
    """A session that is opened when it is first used: if weights are not shared, it holds them a second time."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._session, self._lock = make, None, threading.Lock()

    def open(self) -> Any:  # noqa: ANN401 - onnxruntime has no types
        with self._lock:
            if self._session is None:
                self._session = self._make()
            return self._session


def ort_value(array: npt.NDArray[Any], kind: str = "cpu", number: int = 0) -> Any:  # noqa: ANN401
    """The array on a device: "cpu" or "cuda"."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, number)


def weight_bytes(graph: Graph) -> int:
    """Of the large weights that a call reads."""
    return sum(math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in set(graph.large_weights))


def _shared_weights(bundle: Path, manifest: Manifest, graphs: Sequence[Graph]) -> dict[str, Any]:
    """Weights that several graphs use, mapped into memory once; otherwise each session would map them separately."""
    held = Counter(tensor for graph in graphs for tensor in set(graph.large_weights))
    return {tensor.name: ort_value(_mapped(bundle, manifest, tensor)) for tensor, users in held.items() if users > 1}


def _mapped(bundle: Path, manifest: Manifest, tensor: StoredTensor) -> npt.NDArray[Any]:
    if tensor.file not in manifest.files:  # only those have been checked
        raise BundleError(f"{tensor.name} lies in {tensor.file}, which is no file of the bundle; export it again")
    try:
        return np.memmap(bundle / tensor.file, tensor.dtype, "r", tensor.offset, tensor.shape)
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(f"{tensor.name} is not where the manifest says it lies in {tensor.file}: {error}") from error


def _options(settings: RuntimeSettings, threads: int) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A thread that spins while it waits takes a core from others, and a decoding step waits often.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if settings.spinning else "0")
    return options
