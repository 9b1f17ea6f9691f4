"""A directory that CTranslate2's converters wrote: model.bin, config.json, vocabularies; and the tokenizer's own files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dragoman.export.checkpoint.files import require_file
from dragoman.export.checkpoint.formats.ctranslate2.binary import ModelBinary, has_signature
from dragoman.export.checkpoint.formats.ctranslate2.model import CTranslate2Model
from dragoman.export.checkpoint.formats.ctranslate2.tokenizer import special_tokens, tokenizer_plan
from dragoman.export.checkpoint.formats.ctranslate2.vocabulary import read_vocabularies
from dragoman.export.checkpoint.formats.ctranslate2.weights import CTranslate2Weights, OurNames
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource, Reference
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.search.options import DecodingOptions

__all__ = ["CTranslate2Format", "open_model"]

MODEL = "model.bin"
USUAL = DecodingOptions(beam_size=2, early_stopping="first", max_length=256, min_length=2)
"""What `translate_batch` does when nothing is asked for: at least one token before the end token."""


class CTranslate2Format:
    """Recognised by the version and the specification that model.bin begins with."""

    name = "ctranslate2"
    looks_for = f"a directory with a {MODEL} of CTranslate2"

    def recognises(self, source: Path) -> bool:
        """By the first bytes of model.bin."""
        return has_signature(source / MODEL)

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
        return open_model(source, limits, companions, name=source.resolve().name, generation=USUAL)


def open_model(
    directory: Path,
    limits: TokenLimits,
    companions: CompanionFiles,
    *,
    name: str,
    generation: DecodingOptions,
    tokenizer_directory: Path | None = None,
    literal: bool = False,
) -> OpenedSource:
    """The model in `directory`; `literal`: its settings alone say which tokens surround a source."""
    binary = ModelBinary(require_file(directory / MODEL, "the weights"))
    require_file(directory / "config.json", "the settings")
    rows = CTranslate2Model(binary, None)
    words = read_vocabularies(directory, rows.source_rows, rows.target_rows)
    model = CTranslate2Model(binary, words.layer_norm_epsilon)
    config = model.config(limits)
    tokens = special_tokens(words, starts_from_zero=model.starts_from_zero)
    plan = tokenizer_plan(tokenizer_directory or directory, words, config, tokens, companions, literal=literal)
    longest = min(generation.max_length, limits.target(config))
    return OpenedSource(
        name=name,
        architecture="CTranslate2 TransformerSpec",
        config=config,
        weights=CTranslate2Weights(binary, model.places(), model.target_rows if model.starts_from_zero else None),
        weight_names=OurNames(),
        tokens=tokens,
        generation=dataclasses.replace(generation, max_length=longest, min_length=min(generation.min_length, longest)),
        tokenizer_plan=plan,
        reference=Reference("ctranslate2", directory),
    )
