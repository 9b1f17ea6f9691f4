"""A loaded bundle after its first translations: everything that the handlers need of it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Generator
from functools import lru_cache
from pathlib import Path
from typing import Any

from dragoman.bundle.languages import LanguageResolver, language_resolver
from dragoman.bundle.manifest import MANIFEST_NAME, Manifest
from dragoman.bundle.tasks import longest_prefix
from dragoman.bundle.tokenizer import Tokenizer, literal_tokens_of
from dragoman.errors import InvalidRequest, ServeError
from dragoman.serving.engine import Engine, EngineLimits, MemoryContract
from dragoman.serving.in_process import open_model
from dragoman.serving.process.glossaries import Glossaries
from dragoman.serving.process.options import OptionsReader, RequestOptions
from dragoman.serving.process.settings import EngineSettings, ProcessSettings
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.text.capitals import Capitals
from dragoman.serving.text.document import Document, Part, PlainBlock
from dragoman.serving.text.fitting import Measure
from dragoman.serving.text.formats import blocks_of
from dragoman.serving.text.glossary import read_glossary
from dragoman.serving.text.placeholders import may_have_placeholders
from dragoman.serving.text.planning import Splitting, is_plain_sentence, plan_document
from dragoman.serving.text.protection import Protection
from dragoman.serving.text.sentence_rules import has_spaces
from dragoman.serving.text.stand_ins import StandIns
from dragoman.serving.text.unread_words import UnreadWords

__all__ = ["LoadedBundle", "engine_limits", "load_bundle"]

_REMEMBERED_CHARACTERS = 24
_NO_GAPS = ("", "")


class LoadedBundle:
    """One model that is ready to translate. `version` changes whenever anything in the bundle does."""

    def __init__(
        self,
        settings: ProcessSettings,
        manifest: Manifest,
        *,
        version: str,
        tokenizer: Tokenizer,
        engine: Engine,
        contract: MemoryContract,
        languages: LanguageResolver | None = None,
        glossaries: Glossaries | None = None,
        stand_ins: StandIns | None = None,
    ) -> None:
        self.settings, self.manifest, self.version = settings, manifest, version
        self.tokenizer, self.engine, self.contract = tokenizer, engine, contract
        self.languages = languages or LanguageResolver()
        self.glossaries = glossaries or Glossaries({})
        self.options = OptionsReader(
            *(manifest.dimensions, manifest.generation, settings.limits, self.languages, manifest.tasks), self.glossaries
        )
        self.stand_ins = stand_ins or StandIns(tokenizer)
        self._unread = UnreadWords(tokenizer.reads)
        self._longest_prefix = longest_prefix(manifest.dimensions)
        # Long texts are measured word by word, and words come again and again.
        self._count_word = lru_cache(maxsize=4096)(self._count)
        self._remembered_measure = lru_cache(maxsize=16)(self._measure)

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end a translation."""
        return frozenset(self.manifest.tokens.ends)

    @property
    def widest_beam(self) -> int:
        """The widest beam that one request may have."""
        limits = self.engine.limits
        return min(limits.max_beam_size, limits.max_rows, self.settings.limits.max_beam_size)

    def plan(self, text: str, options: RequestOptions, most_parts: int | None = None) -> Generator[None, None, Document]:
        """The parts that `text` is translated in: its sentences, its lines, or itself; InvalidRequest for too many."""
        if (short := self._plan_at_once(text, options)) is not None:
            return short
        language, measure = self._beginning(text, options)
        blocks = yield from blocks_of(
            *(text[len(language) :], options.format, self._protection(options)),
            translates_attributes=options.translate_attributes,
        )
        document = yield from plan_document(
            blocks,
            measure,
            Splitting(
                options.split or self.manifest.segmentation,
                refuse_long=options.split == "none",
                language=options.source_language or self.manifest.model.source_language,
                spaced=has_spaces(options.target_language or self.manifest.model.target_language),
                most_parts=most_parts,
            ),
            language + options.task_prefix,
        )
        return document._replace(start=len(language)) if language else document

    def _plan_at_once(self, text: str, options: RequestOptions) -> Document | None:
        """The result of `plan` for one plain sentence, computed cheaply; None for any other text."""
        segmentation = options.split or self.manifest.segmentation
        if (
            (segmentation != "sentence" or options.format != "text" or options.glossary is not None or options.task_prefix)
            or (options.placeholders and may_have_placeholders(text))
            or (options.capitals and Capitals.may_be_in(text))
            or not is_plain_sentence(text, options.source_language or self.manifest.model.source_language)
            or (options.placeholders and self._unread.may_be_in(text))
            or self.languages.leading_token(text)
            or not self._remembered_measure(len(options.language_tokens)).fits(text)
        ):
            return None
        return Document((PlainBlock(text).part(0, len(text)),), _NO_GAPS)

    def plan_whole(self, text: str, options: RequestOptions) -> Document:
        """The text as one part, unchanged; InvalidRequest when it is longer than the model accepts."""
        language, measure = self._beginning(text, options)
        whole = text[len(language) :].strip()
        if not whole:
            raise InvalidRequest(f"the text is empty behind {language.strip()}")
        if not measure.fits(whole):
            raise InvalidRequest(
                f"a text of {len(whole)} characters has more tokens than the model takes ({measure.max_tokens}); "
                "send its sentences one by one"
            )
        return Document((Part(whole),), ("", ""), language + options.task_prefix)

    def _beginning(self, text: str, options: RequestOptions) -> tuple[str, Measure]:
        """The language token that the text begins with, and the measure of what fits after it and the task's prefix."""
        language = self.languages.leading_token(text)
        if language and options.target_language is not None:
            raise InvalidRequest(
                f"the text begins with {language.strip()} and the request has a target_language; use one of the two"
            )
        self._check_prefix(options.task_prefix)
        return language, self._measure(len(options.language_tokens), language + options.task_prefix)

    def _measure(self, language_tokens: int, lead: str = "") -> Measure:
        return Measure(self._count_tokens, self.manifest.dimensions.max_source_tokens - language_tokens, lead)

    def _protection(self, options: RequestOptions) -> Protection:
        # What the caller requires as tokens is not moved.
        is_free = not (options.decoding.must_occur or options.decoding.prefix or options.prefix_text)
        return Protection(
            self.tokenizer,
            self.stand_ins,
            options.decoding,
            keeps_placeholders=options.placeholders,
            keeps_places=options.alignment or bool(options.alternatives_at),
            glossary=self.glossaries.of(options.glossary),
            capitals=self._capitals(options) if options.capitals else None,
            unread=self._unread if options.placeholders else None,
            can_enforce=self.engine.can_enforce_phrases and self.widest_beam > 1,
            places_terms=is_free and self.engine.can_force,
            widest=self.widest_beam,
        )

    def _capitals(self, options: RequestOptions) -> Capitals:
        model = self.manifest.model
        source, target = options.source_language or model.source_language, options.target_language or model.target_language
        return Capitals(source, target)

    def source(self, document: Document, part: Part, options: RequestOptions) -> tuple[int, ...]:
        """What the encoder reads for a part of a document."""
        return options.language_tokens.wrap(self.tokenizer.encode(document.lead + part.text))

    def shortlist(self, document: Document, options: RequestOptions) -> int:
        """The number of the shortlist for a document's translation."""
        if not self.manifest.shortlists:
            return 0
        named = self.languages.leading_token(document.lead)
        return options.language_tokens.shortlist or self.languages.shortlist_behind(named)

    def choices(self, shortlist: int) -> int:
        """How many tokens the shortlist of this number has."""
        lists = list(self.manifest.shortlists.values())
        return lists[shortlist - 1] if shortlist else self.manifest.dimensions.choices

    def _check_prefix(self, prefix: str) -> None:
        if prefix and (tokens := self._count_word(prefix)) > self._longest_prefix:
            raise InvalidRequest(f"task_prefix has {tokens} tokens; for this model it may have {self._longest_prefix}")

    def _count_tokens(self, text: str) -> int:
        return self._count_word(text) if len(text) <= _REMEMBERED_CHARACTERS else self._count(text)

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def introduction(self) -> dict[str, Any]:
        """The report to the supervisor: for the operator, and for the server's status."""
        manifest = self.manifest
        return {
            "model": manifest.model.name,
            "architecture": manifest.model.architecture,
            "parameters": manifest.model.parameters,
            "precision": manifest.precision,
            "version": self.version,
            "source_languages": list(self.languages.source.codes),
            "target_languages": list(self.languages.target.codes),
            "shortlists": {
                str(language): self.choices(language.shortlist)
                for language in self.languages.target.languages
                if self.choices(language.shortlist) < manifest.dimensions.target_vocabulary
            },
            "memory": str(self.contract),
            "memory_bytes": self.contract.total_bytes,
            "max_rows": self.engine.limits.max_rows,
            "max_queue": self.engine.limits.max_queue_requests,
        }


def load_bundle(settings: ProcessSettings, kept: Path | None = None) -> LoadedBundle:
    """Check the bundle's files, load its graphs, and translate something. `kept`: a directory that outlives this process."""
    options = settings.engine
    limits = engine_limits(options, settings.limits.max_beam_size)
    runtime = RuntimeSettings(device=options.device, threads=options.threads or 0, device_id=options.gpu, kernels=kept)
    loaded = open_model(settings.bundle, runtime, limits)
    _check_beam(loaded.manifest, limits)
    if options.max_memory_bytes is not None:
        loaded.contract.check(options.max_memory_bytes)
    loaded.warm_up()
    version = hashlib.sha256((settings.bundle / MANIFEST_NAME).read_bytes()).hexdigest()[:12]
    return LoadedBundle(
        settings,
        loaded.manifest,
        version=version,
        tokenizer=loaded.tokenizer,
        engine=loaded.engine,
        contract=loaded.contract,
        languages=_languages(loaded.manifest, loaded.tokenizer),
        stand_ins=StandIns(loaded.tokenizer, loaded.translate_shortly),
        glossaries=Glossaries({name: read_glossary(Path(path)) for name, path in settings.glossaries.items()}),
    )


def _languages(manifest: Manifest, tokenizer: Tokenizer) -> LanguageResolver:
    return language_resolver(manifest, literal_tokens_of(tokenizer))


def _check_beam(manifest: Manifest, limits: EngineLimits) -> None:
    own, possible = manifest.generation.beam_size, min(limits.max_rows, limits.max_beam_size)
    if own > possible:
        raise ServeError(
            f"the model's own beam of {own} is more than this server would decode ({possible}); "
            "raise --max-batch or --max-beam-size"
        )


def engine_limits(options: EngineSettings, max_beam_size: int) -> EngineLimits:
    """The engine's own limits, overridden by the operator's settings."""
    chosen = {
        "max_rows": options.max_batch,
        "max_queue_requests": options.max_queue,
        "max_sessions": options.max_sessions,
        "max_beam_size": max_beam_size,
    }
    return dataclasses.replace(EngineLimits(), **{name: value for name, value in chosen.items() if value is not None})
