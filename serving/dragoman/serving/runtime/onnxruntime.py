"""ONNX Runtime: opens a bundle's graphs and runs them, for either lowering. The only module that imports onnxruntime."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from dragoman import native
from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Graph, Lowering, Manifest, StoredTensor
from dragoman.errors import BundleError, ServeError
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts, memory_contract
from dragoman.serving.engine.runtime import Decoder, Encoded, ForcedRuntime
from dragoman.serving.runtime.encoding import DeviceEncoder, flat
from dragoman.serving.runtime.forced import LazySession, NativeForced, PortableForced
from dragoman.serving.runtime.native import NativeDecoder, can_score_tokens
from dragoman.serving.runtime.portable import DeviceMemory, PortableDecoder
from dragoman.serving.runtime.providers import providers_for
from dragoman.serving.runtime.settings import RuntimeSettings, ThreadLayout

__all__ = ["OnnxRuntime"]


class OnnxRuntime:
    """A bundle's encoder and decoder, checked and ready to run."""

    is_lost = False  # an error of ONNX Runtime is the call's

    def __init__(self, bundle: Path, manifest: Manifest, settings: RuntimeSettings | None = None) -> None:
        self._settings = settings or RuntimeSettings()
        check_files(bundle, manifest)
        self._file_bytes = sum(record.bytes for name, record in manifest.files.items() if name.endswith((".bin", ".onnx")))
        self._widest = 4 * manifest.dimensions.d_model
        lowering = _lowering(manifest, self._settings)
        encoder, self._decoder_graph = manifest.graph("encoder", lowering), manifest.graph("decoder", lowering)
        self._threads = _thread_layout(self._settings, manifest, self._decoder_graph)
        self.calls_at_once, self.rows_together = self._threads.calls_at_once, self._threads.rows_together
        self.computing = _computing(self._decoder_graph, self._threads)
        # Sessions do not own what is shared: it is ours for as long as they live.
        self._shared = _shared_weights(bundle, manifest, lowering) if self._settings.device == "cpu" else {}
        self._encoder = self._opened(bundle, manifest, encoder)
        self._decoder = self._opened(bundle, manifest, self._decoder_graph)
        self._cross_names = [spec.name for spec in encoder.outputs]
        sizes = manifest.dimensions
        cache = next(spec for spec in self._decoder_graph.inputs if spec.name in {"self_cache", "self_key_0"})
        self.layout = CacheLayout(sizes.decoder_layers, sizes.heads, sizes.head_dim, cache.dtype)
        self.max_candidates = self._decoder_graph.max_candidates
        self.can_score_tokens = can_score_tokens(self._decoder)
        self.pads = lowering != "native"
        self._lengths = sizes.max_source_tokens, sizes.max_target_tokens
        self.cache_copies = 2 if self.pads else 1  # past and present
        self._memory = _memory(self._settings)
        self._device_encoder = DeviceEncoder(self._encoder, self._cross_names, self._memory)

        self.forced = self._forced(bundle, manifest, lowering)

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        if self.pads:
            return self._device_encoder.encode(sources)
        inputs, lengths = flat(sources)
        return Encoded(self._encoder.run(self._cross_names, inputs), lengths)

    def _forced(self, bundle: Path, manifest: Manifest, lowering: Lowering) -> ForcedRuntime | None:
        graph = next((one for one in manifest.graphs if (one.role, one.lowering) == ("forced", lowering)), None)
        if graph is None:  # a bundle of an earlier version
            return None
        when_fed = manifest.alignment is not None and manifest.alignment.when == "fed"
        session = LazySession(functools.partial(self._opened, bundle, manifest, graph))
        if self.pads:
            return PortableForced(session, self._cross_names, (self._lengths[1], graph.max_candidates), when_fed)
        if manifest.precision != "fp16":  # weights are shared as they lie in the file; those of fp16 are converted
            session.open()
        return NativeForced(session, self.layout, when_fed)

    def contract(self, limits: EngineLimits, model: ModelFacts) -> MemoryContract:
        """What an engine with these limits may take."""
        weights = 2 * self._file_bytes  # ONNX Runtime keeps most of them a second time, packed for its matrix products
        return memory_contract(limits, model, self.layout, weights, self._widest, cache_copies=self.cache_copies)

    def decoder(self, width: int, sequences: int) -> Decoder:
        if self.pads:
            return PortableDecoder(self._decoder, self.layout, width, self._memory)
        return NativeDecoder(self._decoder, self.layout, width, sequences, self._lengths)

    def _opened(self, bundle: Path, manifest: Manifest, graph: Graph) -> Any:  # noqa: ANN401
        providers = providers_for(self._settings)
        wanted, device = providers[0][0], self._settings.device
        if wanted not in onnxruntime.get_available_providers():
            raise ServeError(
                f"this ONNX Runtime ({onnxruntime.__version__}) has no {wanted}, which device={device!r} "
                "needs; install onnxruntime-gpu, or serve with device='cpu'"
            )
        is_ours = graph.lowering == "native"  # its operators have threads of their own
        options = _options(self._settings, 1 if is_ours else self._threads.threads_a_call)
        if is_ours:
            options.register_custom_ops_library(str(_kernels(graph)))
        for name, tensor in self._shared.items():
            options.add_initializer(name, tensor)
        try:
            session = onnxruntime.InferenceSession(str(bundle / graph.file), options, providers=providers)
        except Exception as error:
            raise BundleError(
                f"ONNX Runtime can't open {graph.file} of the bundle, exported by dragoman {manifest.dragoman_version} "
                f"(if an operator is not known here, export the checkpoint again): {error}"
            ) from error
        # A provider that does not find its libraries or its device is left out with a warning, and the CPU takes its place.
        if wanted not in session.get_providers():
            raise ServeError(
                f"ONNX Runtime ({onnxruntime.__version__}) could not start {wanted}, which device={device!r} needs: its "
                "libraries (docs/gpu.md) or the device are not found; its own message stands above"
            )
        return session


def _memory(settings: RuntimeSettings) -> DeviceMemory:
    kind, number = "cpu" if settings.device == "cpu" else "cuda", settings.device_id
    return DeviceMemory(kind, number, lambda array: onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, number))


def _shared_weights(bundle: Path, manifest: Manifest, lowering: Lowering) -> dict[str, Any]:
    """Weights that several graphs hold, mapped into memory once: left alone, each session maps them for itself."""
    held = Counter(tensor for graph in manifest.graphs if graph.lowering == lowering for tensor in set(graph.large_weights))
    return {
        tensor.name: onnxruntime.OrtValue.ortvalue_from_numpy(_mapped(bundle, manifest, tensor))
        for tensor, graphs in held.items()
        if graphs > 1
    }


def _mapped(bundle: Path, manifest: Manifest, tensor: StoredTensor) -> npt.NDArray[Any]:
    if tensor.file not in manifest.files:  # only those have been checked
        raise BundleError(f"{tensor.name} lies in {tensor.file}, which is no file of the bundle; export it again")
    try:
        return np.memmap(bundle / tensor.file, tensor.dtype, "r", tensor.offset, tensor.shape)
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(f"{tensor.name} is not where the manifest says it lies in {tensor.file}: {error}") from error


def _thread_layout(settings: RuntimeSettings, manifest: Manifest, decoder: Graph) -> ThreadLayout:
    if decoder.lowering == "native":
        return settings.thread_layout(manifest.precision)
    return ThreadLayout(1, settings.thread_count(manifest.precision))  # its decoders share what arranges their caches


def _computing(decoder: Graph, layout: ThreadLayout) -> contextlib.AbstractContextManager[None]:
    threads = layout.calls_at_once * layout.threads_a_call
    if decoder.lowering != "native" or threads == 1:
        return contextlib.nullcontext()
    return native.ThreadPool(_kernels(decoder), threads)


def _options(settings: RuntimeSettings, threads: int) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A thread that spins while it waits takes a core from its neighbours, and a decoding step waits often.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if settings.spinning else "0")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options


def _lowering(manifest: Manifest, settings: RuntimeSettings) -> Lowering:
    """The graphs with custom operators on a CPU, where the bundle has them; the portable ones elsewhere."""
    held = {graph.lowering for graph in manifest.graphs if graph.role == "decoder"}
    return "native" if "native" in held and settings.device == "cpu" else "portable"


def _kernels(graph: Graph) -> Path:
    path = native.ops_library()
    if path is None:
        raise ServeError(
            f"{graph.file} of the bundle needs dragoman's own operators, which are not built on this machine: install a C++ "
            "compiler and run `python native/build.py`, or export the bundle with --lowering portable"
        )
    return path
