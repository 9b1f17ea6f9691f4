"""The runtime for graphs with custom operators: sources without padding, paged KV caches, a thread pool of its own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman import native
from dragoman.bundle.manifest import Manifest
from dragoman.errors import ServeError
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts
from dragoman.serving.engine.runtime import Decoder, Encoded
from dragoman.serving.runtime.native.decoder import NativeDecoder
from dragoman.serving.runtime.native.forced import NativeForced
from dragoman.serving.runtime.scored_tokens import can_score_tokens
from dragoman.serving.runtime.sessions import BundleSessions, weight_bytes
from dragoman.serving.runtime.settings import LARGE_WEIGHT_BYTES, RuntimeSettings, ThreadLayout

__all__ = ["NativeRuntime", "flat"]


class NativeRuntime:
    """Several calls at a time: each runs in the thread of its caller, helped by the idle threads of the pool."""

    is_lost = False  # an error of ONNX Runtime belongs to the call
    pads = False

    def __init__(self, bundle: Path, manifest: Manifest, settings: RuntimeSettings) -> None:
        library = native.ops_library()
        if library is None:
            raise ServeError(
                f"{manifest.graph('decoder', 'native').file} of the bundle needs dragoman's custom operators, which are not "
                "built on this machine: install a C++ compiler and run `python native/build.py`, or export the bundle with "
                "--lowering portable"
            )
        self._sessions = BundleSessions(bundle, manifest, "native", settings, threads=1, operators=library)
        decoder_bytes = weight_bytes(self._sessions.decoder_graph)
        threads = settings.thread_layout(manifest.precision, decoder_bytes)
        self.calls_at_once, self.rows_together = threads.calls_at_once, threads.rows_together
        self.computing = _thread_pool(library, threads)
        self.layout = self._sessions.layout("self_cache")
        self.max_candidates = self._sessions.decoder_graph.max_candidates
        self.can_score_tokens = can_score_tokens(self._sessions.decoder)
        self._lengths = manifest.dimensions.max_source_tokens, manifest.dimensions.max_target_tokens
        self._encodes_in_place = decoder_bytes > LARGE_WEIGHT_BYTES
        self.forced = self._forced(manifest)

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """A large model's keys and values go to arrays that end with their user: ONNX Runtime would keep the memory of its
        largest call. For a small one, fresh memory and a binding cost up to a sixth of the call."""
        inputs, lengths = flat(sources)
        if not self._encodes_in_place:
            return Encoded(self._sessions.encoder.run(self._sessions.encoder_outputs, inputs), lengths)
        shape = len(inputs["source_ids"]), 2 * self.layout.heads * self.layout.head_dim
        cross = [np.empty(shape, np.float32) for _ in self._sessions.encoder_outputs]
        binding = self._sessions.encoder.io_binding()
        for name, given in inputs.items():
            binding.bind_cpu_input(name, given)
        for name, array in zip(self._sessions.encoder_outputs, cross, strict=True):
            binding.bind_output(name, "cpu", 0, np.float32, shape, array.ctypes.data)
        self._sessions.encoder.run_with_iobinding(binding)
        return Encoded(cross, lengths)

    def decoder(self, width: int, sequences: int) -> Decoder:
        return NativeDecoder(self._sessions.decoder, self.layout, width, sequences, self._lengths)

    def contract(self, limits: EngineLimits, model: ModelFacts) -> MemoryContract:
        """The memory that an engine with these limits may take."""
        return self._sessions.contract(limits, model, self.layout, cache_copies=1)

    def _forced(self, manifest: Manifest) -> NativeForced | None:
        session = self._sessions.forced
        if session is None:
            return None
        if manifest.precision != "fp16":  # weights are shared as they lie in the file; those of fp16 are converted
            session.open()
        graph = manifest.graph("forced", "native")
        shapes = {spec.name: spec.shape for spec in graph.inputs}
        return NativeForced(
            session,
            self.layout,
            aligns_when_fed=manifest.aligns_when_fed,
            aligns_alone=shapes["targets"] != shapes["tokens"],  # it did not in bundles of earlier versions
        )


def flat(sources: Sequence[Sequence[int]]) -> tuple[dict[str, npt.NDArray[np.integer[Any]]], npt.NDArray[np.int32]]:
    """The inputs of an encoder without padding, all sources one after the other; and their lengths (sources,)."""
    if len(sources) == 1:  # most calls of a server
        starts, lengths = np.array([[0], [len(sources[0])]], np.int32)
        ids = np.array(sources[0], np.int64)
        positions = np.arange(len(ids), dtype=np.int32)
    else:
        lengths = np.array([len(source) for source in sources], np.int32)
        starts = lengths.cumsum(dtype=np.int32) - lengths
        ids = np.fromiter(itertools.chain.from_iterable(sources), np.int64, int(lengths.sum()))
        positions = np.arange(len(ids), dtype=np.int32) - starts.repeat(lengths)
    inputs = {"source_ids": ids, "source_positions": positions, "source_starts": starts, "source_lengths": lengths}
    return inputs, lengths


def _thread_pool(library: Path, layout: ThreadLayout) -> contextlib.AbstractContextManager[None]:
    threads = layout.calls_at_once * layout.threads_a_call
    return contextlib.nullcontext() if threads == 1 else native.ThreadPool(library, threads)
