"""ONNX Runtime: opens a bundle's graphs and runs them, for either lowering. The only module that imports onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import Graph, Lowering, Manifest, Role
from dragoman.errors import BundleError, ServeError
from dragoman.serving.engine.cache import CacheLayout
from dragoman.serving.engine.runtime import Encoded, Lane
from dragoman.serving.runtime.in_place import InPlaceLane
from dragoman.serving.runtime.portable import DeviceMemory, PortableLane
from dragoman.serving.runtime.providers import providers_for
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["OnnxRuntime"]


class OnnxRuntime:
    """A bundle's encoder and decoder, checked and ready to run."""

    def __init__(self, bundle: Path, manifest: Manifest, settings: RuntimeSettings | None = None) -> None:
        self._settings = settings or RuntimeSettings()
        check_files(bundle, manifest)
        lowering = _lowering(manifest, self._settings)
        encoder, self._decoder_graph = manifest.graph("encoder", lowering), manifest.graph("decoder", lowering)
        self._encoder = self._opened(bundle, manifest, encoder)
        self._decoder = self._opened(bundle, manifest, self._decoder_graph)
        self._cross_names = [spec.name for spec in encoder.outputs]
        sizes, cache = manifest.dimensions, next(spec for spec in self._decoder_graph.inputs if spec.name == "self_key_0")
        self.layout = CacheLayout(sizes.decoder_layers, sizes.heads, sizes.head_dim, cache.dtype)
        self.max_candidates = self._decoder_graph.max_candidates

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        lengths = np.array([len(source) for source in sources], np.int32)
        ids = np.zeros((len(sources), int(lengths.max())), np.int64)  # (batch, source)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
        cross = self._encoder.run(self._cross_names, {"source_ids": ids, "source_lengths": lengths})
        return Encoded(cross, lengths)

    def lane(self, width: int) -> Lane:
        if self._decoder_graph.in_place_cache:
            return InPlaceLane(self._decoder, self.layout, width)
        return PortableLane(self._decoder, self.layout, width, _memory(self._settings))

    def _opened(self, bundle: Path, manifest: Manifest, graph: Graph) -> Any:  # noqa: ANN401
        providers = providers_for(self._settings, manifest, graph.role)
        missing = providers[0][0]
        if missing not in onnxruntime.get_available_providers():
            raise ServeError(
                f"this ONNX Runtime ({onnxruntime.__version__}) has no {missing}, which device={self._settings.device!r} "
                "needs; install onnxruntime-gpu, or serve with device='cpu'"
            )
        try:
            return onnxruntime.InferenceSession(str(bundle / graph.file), _options(self._settings), providers=providers)
        except Exception as error:
            raise BundleError(f"ONNX Runtime can't open {graph.file} of the bundle: {error}") from error


def _memory(settings: RuntimeSettings) -> DeviceMemory:
    kind, number = "cpu" if settings.device == "cpu" else "cuda", settings.device_id
    return DeviceMemory(kind, number, lambda array: onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, number))


def _options(settings: RuntimeSettings) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.thread_count
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A thread that spins while it waits takes a core from its neighbours, and a decoding step waits often.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if settings.spinning else "0")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options


def _lowering(manifest: Manifest, settings: RuntimeSettings) -> Lowering:
    """The tuned graphs on a CPU, where the bundle has them; the portable ones elsewhere."""
    held: set[tuple[Role, Lowering]] = {(graph.role, graph.lowering) for graph in manifest.graphs}
    return "cpu" if settings.device == "cpu" and ("decoder", "cpu") in held else "portable"
