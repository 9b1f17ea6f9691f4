"""From a directory to a `Checkpoint`: everything the export needs to know of the original model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dragoman.bundle.manifest import Dimensions, ModelCard, SpecialTokens, TokenizerFiles
from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint.files import open_weights, read_json, require_file
from dragoman.export.checkpoint.generation import generation_options, generation_settings
from dragoman.export.checkpoint.marian import MarianReader
from dragoman.export.checkpoint.weights import WeightNames, fill
from dragoman.export.transformer import Transformer, TransformerConfig
from dragoman.search.options import DecodingOptions

__all__ = ["Checkpoint", "Reader", "read_checkpoint"]


class Reader(WeightNames, Protocol):
    """What one architecture knows: how its settings and weights are called. Made from its config.json."""

    def config(self) -> TransformerConfig:
        """Our configuration of the same model."""

    def tokens(self, directory: Path, generation: Mapping[str, Any]) -> SpecialTokens:
        """The ids the search must know."""

    def tokenizer(self, directory: Path, config: TransformerConfig) -> TokenizerFiles:
        """The tokenizer's files, all there and agreeing with the embedding."""

    def languages(self, directory: Path) -> tuple[str | None, str | None]:
        """Source and target language, where the checkpoint says."""


READERS = {name: reader for reader in (MarianReader,) for name in reader.architectures}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained model, read whole and checked."""

    directory: Path
    config: TransformerConfig
    model: Transformer
    card: ModelCard
    tokens: SpecialTokens
    generation: DecodingOptions
    tokenizer: TokenizerFiles

    @property
    def tokenizer_paths(self) -> dict[str, Path]:
        """Where to find each file that goes into the bundle, by its name there."""
        return {name: self.directory / name for name in sorted(set(self.tokenizer.files.values()))}

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
            max_source_tokens=config.max_positions,
            max_target_tokens=config.max_positions,
            shortlist=self.model.choices if self.model.choices < config.target_vocabulary else None,
        )


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read the checkpoint in `directory`; CheckpointError says what is wrong with it."""
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a checkpoint: no such directory")
    if not (directory / "config.json").is_file():
        raise CheckpointError(f"{directory} is not a checkpoint: it has no config.json")
    raw = read_json(require_file(directory / "config.json", "the configuration"))
    architecture, reader = _reader(raw)
    settings = generation_settings(directory, raw)
    config, tokens = _config(reader), reader.tokens(directory, settings)
    tokenizer = reader.tokenizer(directory, config)
    _check_tokens(tokens, config)
    model = Transformer(config).eval()
    fill(model, open_weights(directory), reader)
    source_language, target_language = reader.languages(directory)
    return Checkpoint(
        directory=directory,
        config=config,
        model=model,
        card=ModelCard(
            name=directory.resolve().name,
            architecture=architecture,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            source_language=source_language,
            target_language=target_language,
        ),
        tokens=tokens,
        generation=generation_options(settings, tokens, config.max_positions),
        tokenizer=tokenizer,
    )


def _reader(raw: Mapping[str, Any]) -> tuple[str, Reader]:
    named = raw.get("architectures") or []
    for architecture in named if isinstance(named, list) else []:
        if architecture in READERS:
            return architecture, READERS[architecture](raw)
    what = ", ".join(map(str, named)) if named else f"model_type {raw.get('model_type')!r}"
    raise CheckpointError(f"the architecture {what} is not supported; supported are {', '.join(sorted(READERS))}")


def _config(reader: Reader) -> TransformerConfig:
    try:
        return reader.config()
    except CheckpointError:
        raise
    except ExportError as error:
        raise CheckpointError(f"config.json describes a model that can't be: {error}") from error


def _check_tokens(tokens: SpecialTokens, config: TransformerConfig) -> None:
    for name, token in (("pad", tokens.pad), ("eos", tokens.eos), ("decoder_start", tokens.decoder_start)):
        if not 0 <= token < config.target_vocabulary:
            raise CheckpointError(f"the {name} token {token} is not in the target vocabulary of {config.target_vocabulary}")
