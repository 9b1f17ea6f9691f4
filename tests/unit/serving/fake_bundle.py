"""A bundle without files: a tokenizer of letters and an engine with a fake model."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.manifest import SCHEMA_VERSION, Dimensions, Manifest, ModelCard, SpecialTokens, TokenizerFiles
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, MemoryContract
from dragoman.serving.in_process import model_facts
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.settings import EngineSettings, ProcessSettings
from dragoman.wire import Limits
from fake_runtime import FakeRuntime

VOCABULARY = 64
MANIFEST = Manifest(
    schema_version=SCHEMA_VERSION,
    dragoman_version="0.1.0",
    model=ModelCard(name="fake", architecture="none", parameters=0),
    dimensions=Dimensions(8, 1, 8, 1, 1, VOCABULARY, VOCABULARY, max_source_tokens=24, max_target_tokens=24),
    tokens=SpecialTokens(pad=1, eos=0, decoder_start=1),
    generation=DecodingOptions(max_length=6),
    tokenizer=TokenizerFiles("marian", {}),
    precision="fp32",
    targets=("cpu",),
    graphs=(),
    files={},
)


class Letters:
    """A tokenizer: one token a character."""

    def encode(self, text: str) -> list[int]:
        return [2 + ord(character) % (VOCABULARY - 2) for character in text] + [0]

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text)[:-1]

    def reads(self, text: str) -> bool:
        return True

    def source_spans(self, text: str) -> list[tuple[int, int]]:
        return [*((at, at + 1) for at in range(len(text))), (len(text), len(text))]

    def target_spans(self, ids: Any) -> list[tuple[int, int]]:
        ends = list(itertools.accumulate(index > 1 for index in ids))
        return [(end - (index > 1), end) for index, end in zip(ids, ends, strict=True)]

    def decode(self, ids: Any) -> str:
        return "".join(chr(96 + index) for index in ids if index > 1)


class CountingLetters(Letters):
    """Counts the texts that it has tokenised."""

    encoded = 0

    def encode(self, text: str) -> list[int]:
        self.encoded += 1
        return super().encode(text)


def fake_engine(limits: EngineLimits | None = None) -> Engine:
    return Engine(FakeRuntime(VOCABULARY), model_facts(MANIFEST), limits)


def fake_bundle(
    engine: Engine | None = None,
    *,
    cache_bytes: int = 1 << 20,
    tokenizer: Letters | None = None,
    languages: LanguageResolver | None = None,
    limits: Limits | None = None,
) -> LoadedBundle:
    options = EngineSettings(response_cache_bytes=cache_bytes)
    return LoadedBundle(
        ProcessSettings("fake", Path("none"), options, limits or Limits(), probe_id="probe"),
        MANIFEST,
        version="v1",
        tokenizer=tokenizer or Letters(),
        engine=engine or fake_engine(),
        contract=MemoryContract(0, 0, 0, 0, 0, 0),
        languages=languages,
    )
