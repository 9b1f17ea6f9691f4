"""The runtime for graphs of standard operators: padded sources, and caches that each step writes anew."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path

from dragoman.bundle.manifest import Manifest
from dragoman.serving.engine.limits import EngineLimits, MemoryContract, ModelFacts
from dragoman.serving.engine.runtime import Decoder, Encoded
from dragoman.serving.runtime.portable.decoder import PortableDecoder
from dragoman.serving.runtime.portable.device import DeviceMemory
from dragoman.serving.runtime.portable.encoder import DeviceEncoder
from dragoman.serving.runtime.portable.forced import PortableForced
from dragoman.serving.runtime.scored_tokens import can_score_tokens
from dragoman.serving.runtime.sessions import BundleSessions, ort_value
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["PortableRuntime"]


class PortableRuntime:
    """One call at a time, which takes all threads: its decoders share the sessions that rearrange their caches."""

    is_lost = False  # an error of ONNX Runtime is the call's
    pads = True
    calls_at_once = 1
    rows_together = 0

    def __init__(self, bundle: Path, manifest: Manifest, settings: RuntimeSettings) -> None:
        threads = settings.thread_count(manifest.precision)
        self._sessions = BundleSessions(bundle, manifest, "portable", settings, threads=threads)
        self.computing = contextlib.nullcontext()
        self.layout = self._sessions.layout("self_key_0")
        self.max_candidates = self._sessions.decoder_graph.max_candidates
        self.can_score_tokens = can_score_tokens(self._sessions.decoder)
        self._memory = _memory(settings)
        self._encoder = DeviceEncoder(self._sessions.encoder, self._sessions.encoder_outputs, self._memory)
        self.forced = self._forced(manifest)

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        return self._encoder.encode(sources)

    def decoder(self, width: int, sequences: int) -> Decoder:  # noqa: ARG002 - caches grow with what is in them
        return PortableDecoder(self._sessions.decoder, self.layout, width, self._memory)

    def contract(self, limits: EngineLimits, model: ModelFacts) -> MemoryContract:
        """The memory that an engine with these limits may take."""
        return self._sessions.contract(limits, model, self.layout, cache_copies=2)  # past and present

    def _forced(self, manifest: Manifest) -> PortableForced | None:
        session = self._sessions.forced
        if session is None or not self._sessions.forced_takes("target_positions"):  # a bundle of an earlier version
            return None
        candidates = self._sessions.forced_candidates
        return PortableForced(session, self._sessions.encoder_outputs, candidates, manifest.aligns_when_fed)


def _memory(settings: RuntimeSettings) -> DeviceMemory:
    kind, number = "cpu" if settings.device == "cpu" else "cuda", settings.device_id
    return DeviceMemory(kind, number, functools.partial(ort_value, kind=kind, number=number))
