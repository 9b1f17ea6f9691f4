"""Hugging Face: a directory with config.json, safetensors or pickled weights, and the tokenizer's files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.files import open_weights, read_settings, require_file
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource, Reference
from dragoman.export.checkpoint.generation import generation_options, generation_settings, named_tasks
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.readers import READERS, REFUSED, Reader
from dragoman.export.checkpoint.settings import JsonSettings, shown
from dragoman.export.transformer import TransformerConfig

__all__ = ["HuggingFaceFormat"]

CONFIG = "config.json"


class HuggingFaceFormat:
    """Settings in config.json; a reader for each architecture says what it calls them."""

    name = "hugging-face"
    looks_for = f"a directory with {CONFIG} that names its architecture"

    def recognises(self, source: Path) -> bool:
        """Even without an architecture: no other format's directory is left when this one is asked."""
        return (source / CONFIG).is_file()

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:  # noqa: ARG002
        settings = read_settings(require_file(source / CONFIG, "the configuration"))
        architecture, kind = _reader(settings)
        _refuse_variants(settings)
        weights = open_weights(source)
        reader = kind(settings, weights)
        generation = generation_settings(source, settings)
        config, tokens = _config(reader, limits), reader.tokens(generation)
        plan = reader.tokenizer(source, config, tokens)
        tokens = dataclasses.replace(tokens, unknown=plan.unknown)
        return OpenedSource(
            name=source.resolve().name,
            architecture=architecture,
            config=config,
            weights=weights,
            weight_names=reader,
            tokens=tokens,
            generation=generation_options(generation.values, tokens, limits.target(config)),
            tasks=named_tasks(settings, generation, tokens, limits.target(config)),
            tokenizer_plan=plan,
            reference=Reference("transformers", source),
        )


def _reader(settings: JsonSettings) -> tuple[str, type[Reader]]:
    named = settings.raw("architectures") or []
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    for architecture in names:
        if architecture in READERS:
            return architecture, READERS[architecture]
        if architecture in REFUSED:
            raise CheckpointError(f"{architecture} is not supported: {REFUSED[architecture]}")
    what = ", ".join(map(shown, names)) if names else f"model_type {shown(settings.raw('model_type'))}"
    raise CheckpointError(f"the architecture {what} is not supported; supported are {', '.join(sorted(READERS))}")


VARIANTS = {
    "tie_encoder_decoder": (False, "encoder and decoder share their weights"),
    "pruned_heads": ({}, "attention heads were removed"),
    "quantization_config": ({}, "its weights are quantised already; export the original checkpoint"),
    "is_encoder_decoder": (True, "it is not an encoder-decoder model"),
}
"""Settings that change the mathematics of any family, with the value that does not."""


def _refuse_variants(settings: JsonSettings) -> None:
    for name, (neutral, reason) in VARIANTS.items():
        value = settings.raw(name)
        if value is not None and value != neutral:
            raise CheckpointError(f"{name}={shown(value)} in config.json is not supported: {reason}")


def _config(reader: Reader, limits: TokenLimits) -> TransformerConfig:
    try:
        return reader.config(limits)
    except CheckpointError:
        raise
    except ExportError as error:
        raise CheckpointError(f"config.json describes a model that can't be: {error}") from error
