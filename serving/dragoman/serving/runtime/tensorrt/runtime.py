"""A bundle's TensorRT engines on a GPU, behind the engine's runtime interface."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dragoman.bundle.integrity import check_files
from dragoman.bundle.manifest import EngineFile, Manifest, Role
from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts
from dragoman.serving.engine.runtime import Decoder, Encoded
from dragoman.serving.engine.slots import bucket, power_of_two
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt.bindings import Bindings, Import, engines_of, import_cuda
from dragoman.serving.runtime.tensorrt.decoder import TensorRtDecoder
from dragoman.serving.runtime.tensorrt.device import Gpu
from dragoman.serving.runtime.tensorrt.engine import Execution, LoadedEngine, Scratch
from dragoman.serving.runtime.tensorrt.forced import TensorRtForced
from dragoman.serving.runtime.tensorrt.kv_cache import EncodedTensor
from dragoman.serving.runtime.tensorrt.memory import device_contract
from dragoman.serving.runtime.tensorrt.staging import Staging

__all__ = ["TensorRtRuntime"]


class TensorRtRuntime:
    """The engines of a bundle. One call at a time: a GPU does not do two steps faster than one after the
    other, and every one of them reads all weights."""

    calls_at_once = 1
    rows_together = 0
    pads = True
    can_score_tokens = True

    def __init__(
        self,
        bundle: Path,
        manifest: Manifest,
        settings: RuntimeSettings | None = None,
        *,
        importing: Import = importlib.import_module,
    ) -> None:
        """`importing` finds the bindings of TensorRT and CUDA."""
        settings = settings or RuntimeSettings(device="tensorrt")
        self._bundle, self._manifest = bundle, manifest
        engines: dict[Role, EngineFile] = engines_of(manifest, bundle)
        check_files(bundle, manifest)
        self.device = Gpu(*import_cuda(importing), settings.device_id)
        self.computing = contextlib.nullcontext()
        with self.device:  # what TensorRT makes belongs to the GPU that this thread names
            bindings = Bindings(engines["decoder"].flavour, importing)
            self.scratch = Scratch(self.device)
            loaded = {
                role: LoadedEngine(
                    bindings,
                    self.device,
                    self.scratch,
                    bundle=bundle,
                    entry=entry,
                    graph=manifest.graph(role, "portable"),
                    capture=role == "decoder" and settings.cuda_graphs,
                    kernels=settings.kernels,
                )
                for role, entry in engines.items()
            }
            self.encoder, self.decoder_engine = loaded["encoder"], loaded["decoder"]
            self._kernels = [engine.kernels for engine in loaded.values() if engine.kernels is not None]
            self._encoder_execution: Execution | None = None
        sizes, graph = manifest.dimensions, self.decoder_engine.graph
        cache = next(spec for spec in graph.inputs if spec.name == "self_key_0")
        self.layout = CacheLayout(sizes.decoder_layers, sizes.heads, sizes.head_dim, cache.dtype)
        self.max_candidates = graph.max_candidates
        self.forced: TensorRtForced | None = None
        if "forced" in loaded:
            self.forced = TensorRtForced(loaded["forced"], self.device, self.layout, manifest.aligns_when_fed)
        self._staging: dict[tuple[int, int], Staging] = {}

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """Pad to a shape that comes again, run the encoder; its keys and values stay where the decoder reads them."""
        lengths = np.array([len(source) for source in sources], np.int32)
        batch = power_of_two(len(sources))
        length = min(bucket(int(lengths.max())), self.encoder.largest("source_ids", 1))
        with self.device:
            staging = self._encoder_staging(batch, length)
            sent = staging.writable()
            sent["source_ids"][:] = 0
            for row, source in enumerate(sources):
                sent["source_ids"][row, : len(source)] = source
            sent["source_lengths"][:] = 1
            sent["source_lengths"][: len(sources)] = lengths
            staging.send()
            shapes = {"source_ids": (batch, length), "source_lengths": (batch,)}
            heads, head_dim = self.layout.heads, self.layout.head_dim
            cross = {
                spec.name: EncodedTensor(
                    self.device.allocate(self.encoder.output_bytes(spec.name, (batch, heads, length, head_dim))), length
                )
                for spec in self.encoder.graph.outputs
            }
            if self._encoder_execution is None:
                self._encoder_execution = self.encoder.execution(self.encoder.profile_of(shapes))
            addresses = {**staging.addresses, **{name: tensor.buffer.address for name, tensor in cross.items()}}
            self._encoder_execution.bind(shapes, addresses)
            self._encoder_execution.run()
        return Encoded(list(cross.values()), lengths)

    def decoder(self, width: int, sequences: int) -> Decoder:  # noqa: ARG002 - caches grow with what is in them
        return TensorRtDecoder(self.decoder_engine, self.device, self.layout, width)

    @property
    def is_lost(self) -> bool:
        return self.device.is_lost

    def contract(self, limits: EngineLimits, model: ModelFacts) -> MemoryContract:
        """What an engine with these limits may take of the GPU's memory; ServeError when the engines can't do so much, or
        when so much is not free."""
        with self.device:
            contract = device_contract(self, self._bundle, self._manifest, limits, model)
            for kernels in self._kernels:  # every profile has a context now, and its kernels are compiled
                kernels.save()
            return contract

    def _encoder_staging(self, batch: int, length: int) -> Staging:
        """A handful of shapes come again and again; each has its own, so that no copy waits for another shape's."""
        if (batch, length) not in self._staging:
            layout = {"source_ids": ((batch, length), "int64"), "source_lengths": ((batch,), "int32")}
            self._staging[batch, length] = Staging(self.device, layout)
        return self._staging[batch, length]
