"""A bundle served within this process: engine, runtime and tokenizer, without Triton and without a network.

The engine process is built on it; tests and benchmarks drive it directly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path

from dragoman.bundle.manifest import Manifest, read_manifest
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer
from dragoman.bundle.words import VocabularyWords
from dragoman.errors import Overloaded
from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import (
    Engine,
    EngineLimits,
    MemoryContract,
    ModelFacts,
    Sequence,
)
from dragoman.serving.runtime.opening import ModelRuntime, open_runtime
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["LoadedModel", "contract_of", "decode", "model_facts", "open_model", "run"]

_SHORT = 20
_SAMPLE = "This is a sentence to warm up with, long enough to be worth it."


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A bundle ready to translate. One thread drives it."""

    manifest: Manifest
    tokenizer: Tokenizer
    engine: Engine
    contract: MemoryContract

    def warm_up(self) -> None:
        """Translate once in each usual way: the first run of a shape is slow, and may fail."""
        widest = min(self.engine.limits.max_beam_size, self.engine.limits.max_rows)
        sizes = self.manifest.dimensions
        source = tuple(self.tokenizer.encode(_SAMPLE)[: sizes.max_source_tokens])  # a token may be a single character
        for beam_size in sorted({1, min(self.manifest.generation.beam_size, widest)}):
            options = DecodingOptions(beam_size=beam_size, max_length=min(16, sizes.max_target_tokens))
            self.decode([source] * 2, options)

    def translate(self, texts: Many[str], options: DecodingOptions | None = None) -> list[str]:
        """The best translation of each text."""
        prefix = self.manifest.tasks.default_prefix
        sources = [tuple(self.tokenizer.encode(prefix + text)) for text in texts]
        return [self.tokenizer.decode(best[0].tokens) for best in self.decode(sources, options)]

    def translate_shortly(self, texts: Many[str]) -> list[str]:
        """Greedy translations of a few tokens each, to see what a model does with single words."""
        longest = min(_SHORT, self.manifest.dimensions.max_target_tokens)
        options = dataclasses.replace(
            self.manifest.generation, beam_size=1, num_hypotheses=1, min_length=0, max_length=longest, sampling=False
        )
        return self.translate(texts, options)

    def decode(self, sources: Many[tuple[int, ...]], options: DecodingOptions | None = None) -> list[tuple[Hypothesis, ...]]:
        """Hypotheses of each source; see the function `decode`."""
        return decode(self.engine, sources, options or self.manifest.generation)

    def run(self, sequences: Many[Sequence]) -> None:
        """Decode all of them to the end."""
        run(self.engine, sequences)


def decode(
    engine: Engine, sources: Many[tuple[int, ...]], options: DecodingOptions, shortlists: Many[int] | None = None
) -> list[tuple[Hypothesis, ...]]:
    """Hypotheses of each source, all decoded together. The first error of a request is raised once all have ended.

    `shortlists`: the number of the list of each.
    """
    numbers = shortlists or [0] * len(sources)
    sequences = [Sequence(source, options, shortlist=number) for source, number in zip(sources, numbers, strict=True)]
    run(engine, sequences)
    for sequence in sequences:
        if sequence.error is not None:
            raise sequence.error
    return [sequence.hypotheses for sequence in sequences]


def run(engine: Engine, sequences: Many[Sequence]) -> None:
    """Decode all of them to their end, longest first, so that similar ones run side by side."""
    pending = sorted(sequences, key=lambda sequence: sequence.source_tokens)
    while pending or engine.busy:
        _submit_some(engine, pending)
        if not engine.step():
            engine.wait()


def _submit_some(engine: Engine, pending: list[Sequence]) -> None:
    while pending:
        try:
            engine.submit(pending[-1])
        except Overloaded:
            return
        pending.pop()


def open_model(bundle: Path, settings: RuntimeSettings | None = None, limits: EngineLimits | None = None) -> LoadedModel:
    """Open the bundle, check its files, start its engine; the caller runs `warm_up`."""
    manifest = read_manifest(bundle)
    limits = limits or EngineLimits()
    runtime = open_runtime(bundle, manifest, settings or RuntimeSettings())
    tokenizer = open_tokenizer(bundle, manifest.tokenizer, manifest.tokens)
    facts = dataclasses.replace(model_facts(manifest), words=VocabularyWords(tokenizer))
    contract = contract_of(manifest, limits, runtime)
    return LoadedModel(manifest, tokenizer, Engine(runtime, facts, limits), contract)


def model_facts(manifest: Manifest) -> ModelFacts:
    """What the engine must know of the bundle's model."""
    sizes, tokens = manifest.dimensions, manifest.tokens
    return ModelFacts(
        ends=tokens.ends,
        decoder_start=tokens.decoder_start,
        source_vocabulary=sizes.source_vocabulary,
        target_vocabulary=sizes.target_vocabulary,
        max_source_tokens=sizes.max_source_tokens,
        max_target_tokens=sizes.max_target_tokens,
        shortlist=sizes.shortlist,
    )


def contract_of(manifest: Manifest, limits: EngineLimits, runtime: ModelRuntime) -> MemoryContract:
    """The memory contract of an engine for this bundle."""
    return runtime.contract(limits, model_facts(manifest))
