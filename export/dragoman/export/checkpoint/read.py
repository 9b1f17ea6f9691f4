"""From a directory to a `Checkpoint`: everything the export needs to know of the original model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dragoman.bundle.manifest import Dimensions, Languages, ModelCard, SpecialTokens, TokenizerFiles
from dragoman.errors import CheckpointError, ExportError, UsageError
from dragoman.export.checkpoint.files import open_weights, read_settings, require_file
from dragoman.export.checkpoint.generation import generation_options, generation_settings
from dragoman.export.checkpoint.readers import READERS, REFUSED, Reader
from dragoman.export.checkpoint.readers.protocol import TokenLimits
from dragoman.export.checkpoint.settings import Settings, shown
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.checkpoint.weights import load
from dragoman.export.transformer import Transformer, TransformerConfig
from dragoman.search.options import DecodingOptions

__all__ = ["Checkpoint", "TokenLimits", "read_checkpoint"]


UNLIMITED = TokenLimits()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained model, read whole and checked."""

    directory: Path
    config: TransformerConfig
    model: Transformer
    card: ModelCard
    tokens: SpecialTokens
    generation: DecodingOptions
    tokenizer_plan: TokenizerPlan
    limits: TokenLimits = UNLIMITED

    @property
    def tokenizer(self) -> TokenizerFiles:
        """The manifest's entry of the tokenizer."""
        return self.tokenizer_plan.entry

    @property
    def languages(self) -> Languages | None:
        """The languages of a multilingual model."""
        return self.tokenizer_plan.languages

    @property
    def dimensions(self) -> Dimensions:
        """The sizes the manifest tells a runtime."""
        config, attention = self.config, self.config.decoder_attention
        return Dimensions(
            d_model=config.d_model,
            heads=attention.heads,
            head_dim=attention.head_dim,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            source_vocabulary=config.source_vocabulary,
            target_vocabulary=config.target_vocabulary,
            max_source_tokens=_within(self.limits.max_source_tokens, config.max_source_positions, "source"),
            max_target_tokens=_within(self.limits.max_target_tokens, config.max_target_positions, "target"),
            shortlist=self.model.choices if self.model.choices < config.target_vocabulary else None,
        )


def read_checkpoint(directory: Path, limits: TokenLimits = UNLIMITED) -> Checkpoint:
    """Read the checkpoint in `directory`; CheckpointError says what is wrong with it."""
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a checkpoint: no such directory")
    if not (directory / "config.json").is_file():
        raise CheckpointError(f"{directory} is not a checkpoint: it has no config.json")
    settings = read_settings(require_file(directory / "config.json", "the configuration"))
    architecture, kind = _reader(settings)
    _refuse_variants(settings)
    tensors = open_weights(directory)
    reader = kind(settings, tensors)
    generation = generation_settings(directory, settings)
    config, tokens = _config(reader, limits), reader.tokens(generation)
    plan = reader.tokenizer(directory, config, tokens)
    tokens = dataclasses.replace(tokens, unknown=plan.unknown)
    _check_tokens(tokens, config)
    longest = _within(limits.max_target_tokens, config.max_target_positions, "target")
    model = load(config, tensors, reader)
    return Checkpoint(
        directory=directory,
        config=config,
        model=model,
        card=ModelCard(
            name=directory.resolve().name,
            architecture=architecture,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            source_language=plan.source_language,
            target_language=plan.target_language,
        ),
        tokens=tokens,
        generation=generation_options(generation.values, tokens, longest),
        tokenizer_plan=plan,
        limits=limits,
    )


def _reader(settings: Settings) -> tuple[str, type[Reader]]:
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


def _refuse_variants(settings: Settings) -> None:
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


def _within(asked: int | None, positions: int, side: str) -> int:
    if asked is None:
        return positions
    if not 1 <= asked <= positions:
        raise UsageError(f"--max-{side}-tokens {asked} must be between 1 and the model's {positions} positions")
    return asked


def _check_tokens(tokens: SpecialTokens, config: TransformerConfig) -> None:
    for name, token in (("pad", tokens.pad), ("eos", tokens.eos), ("decoder_start", tokens.decoder_start)):
        if not 0 <= token < config.target_vocabulary:
            raise CheckpointError(f"the {name} token {token} is not in the target vocabulary of {config.target_vocabulary}")
