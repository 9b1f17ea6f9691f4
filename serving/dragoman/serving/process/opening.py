"""A bundle, opened and warm: everything the desks need to know of it."""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.bundle.language_names import source_languages, target_languages
from dragoman.bundle.manifest import MANIFEST_NAME, Manifest
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.errors import ServeError
from dragoman.search import DecodingOptions
from dragoman.serving.documents import Document, split_document
from dragoman.serving.engine import Engine, EngineLimits, MemoryContract
from dragoman.serving.in_process import open_model
from dragoman.serving.process.admission import Admission, Terms
from dragoman.serving.process.settings import EngineOptions, ProcessSettings
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["OpenBundle", "engine_limits", "open_bundle"]


_AROUND = 3  # a language token, the mark of a first word, the end token


@dataclass(frozen=True, slots=True)
class OpenBundle:
    """One model that is ready to translate. `version` changes whenever anything in the bundle does."""

    settings: ProcessSettings
    manifest: Manifest
    version: str
    tokenizer: Tokenizer
    engine: Engine
    contract: MemoryContract
    admission: Admission

    def plan(self, text: str, terms: Terms) -> Document:
        """The parts that `text` is translated in: itself, or its sentences when it is too long or has several lines."""
        return split_document(
            text,
            self._count_tokens,
            self.manifest.dimensions.max_source_tokens,
            language=self.manifest.model.source_language,
            long_input=terms.long_input,
        )

    def _count_tokens(self, text: str) -> int:
        """How many tokens `text` has; at most so many where that is enough to know that it fits."""
        at_most = len(text) + _AROUND
        if at_most <= self.manifest.dimensions.max_source_tokens and unicodedata.is_normalized("NFKC", text):
            return at_most  # a token is at least a character, once characters are as sentencepiece makes them
        return len(self.tokenizer.encode(text))

    def options_for(self, terms: Terms, is_first: bool) -> DecodingOptions:
        """The search's options; the words that `prefix_text` forces begin the first part only."""
        if not terms.prefix_text or not is_first:
            return terms.decoding
        forced = tuple(self.tokenizer.encode_target(terms.prefix_text))
        return dataclasses.replace(terms.decoding, prefix=(*terms.decoding.prefix, *forced))

    def introduction(self) -> dict[str, Any]:
        """What the operator is told."""
        manifest = self.manifest
        return {
            "model": manifest.model.name,
            "architecture": manifest.model.architecture,
            "parameters": manifest.model.parameters,
            "precision": manifest.precision,
            "source_languages": source_languages(manifest),
            "target_languages": target_languages(manifest),
            "version": self.version,
            "memory": str(self.contract),
            "memory_bytes": self.contract.total_bytes,
            "max_rows": self.engine.limits.max_rows,
            "max_queue": self.engine.limits.max_queue_requests,
        }


def open_bundle(settings: ProcessSettings) -> OpenBundle:
    """Check the bundle's files, load its graphs, and translate something."""
    options = settings.engine
    limits = engine_limits(options, settings.limits.max_beam_size)
    cache = Path(options.engine_cache) if options.engine_cache else None
    runtime = RuntimeSettings(device=options.device, threads=options.threads or 0, engine_cache=cache)
    loaded = open_model(settings.bundle, runtime, limits)
    _check_beam(loaded.manifest, limits)
    if options.max_memory_bytes is not None:
        loaded.contract.check(options.max_memory_bytes)
    loaded.warm_up()
    manifest = loaded.manifest
    return OpenBundle(
        settings=settings,
        manifest=manifest,
        version=hashlib.sha256((settings.bundle / MANIFEST_NAME).read_bytes()).hexdigest()[:12],
        tokenizer=loaded.tokenizer,
        engine=loaded.engine,
        contract=loaded.contract,
        admission=Admission(settings.name, manifest.dimensions, manifest.generation, settings.limits),
    )


def _check_beam(manifest: Manifest, limits: EngineLimits) -> None:
    own, possible = manifest.generation.beam_size, min(limits.max_rows, limits.max_beam_size)
    if own > possible:
        raise ServeError(
            f"the model's own beam of {own} is more than this server would decode ({possible}); "
            "raise --max-batch or --max-beam-size"
        )


def engine_limits(options: EngineOptions, max_beam_size: int) -> EngineLimits:
    """The engine's own limits with what the operator chose over them."""
    chosen = {
        "max_rows": options.max_batch,
        "max_queue_requests": options.max_queue,
        "max_sessions": options.max_sessions,
        "max_beam_size": max_beam_size,
    }
    return dataclasses.replace(EngineLimits(), **{name: value for name, value in chosen.items() if value is not None})
