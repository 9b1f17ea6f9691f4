"""From a path to a `Checkpoint`: everything that the export needs to know of the original model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dragoman.bundle.manifest import Dimensions, Languages, ModelCard, Segmentation, SpecialTokens, Task, TokenizerFiles
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats import CompanionFiles, Reference, open_source
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.readers.bart import BartReader
from dragoman.export.checkpoint.readers.pegasus import PegasusReader
from dragoman.export.checkpoint.readers.t5 import T5Reader
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.checkpoint.weights import CheckpointWeights, open_checkpoint_weights
from dragoman.export.transformer import Transformer, TransformerConfig, Variant, WeightSource
from dragoman.search.options import DecodingOptions

__all__ = ["Checkpoint", "TokenLimits", "read_checkpoint"]

UNLIMITED = TokenLimits()
NO_COMPANIONS = CompanionFiles()
TRAINED_ON_LONG_TEXTS = frozenset(name for reader in (T5Reader, BartReader, PegasusReader) for name in reader.architectures)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained model, completely read and checked."""

    source: Path
    config: TransformerConfig
    weights: CheckpointWeights
    card: ModelCard
    tokens: SpecialTokens
    generation: DecodingOptions
    tokenizer_plan: TokenizerPlan
    limits: TokenLimits = UNLIMITED
    reference: Reference | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)
    files: object = None  # holds temporary files, deleted with it
    shortlist: tuple[int, ...] | None = None  # the tokens that the exported model may generate; None: all
    shortlists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the same into a language, by its own code
    alignment_heads: tuple[tuple[int, int], ...] = ()

    @property
    def model(self) -> Transformer:
        """The whole model, in memory."""
        return self.source_of_weights.model

    @property
    def source_of_weights(self) -> WeightSource:
        """The weights of what is exported."""
        if self.shortlist is None and not self.alignment_heads and not self.shortlists:
            return self.weights
        return Variant(self.weights, self.shortlist, self.alignment_heads, tuple(self.shortlists.values()))

    @property
    def tokenizer(self) -> TokenizerFiles:
        """The manifest's entry of the tokenizer."""
        return self.tokenizer_plan.entry

    @property
    def languages(self) -> Languages | None:
        """The languages of a multilingual model."""
        return self.tokenizer_plan.languages

    @property
    def segmentation(self) -> Segmentation:
        """The unit that the model was trained on, as its family determines it; `export --segmentation` overrides it."""
        is_translator = self.languages is not None  # MADLAD is a T5, and translates sentences
        return "none" if self.card.architecture in TRAINED_ON_LONG_TEXTS and not is_translator else "sentence"

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
            max_source_tokens=self.limits.source(config),
            max_target_tokens=self.limits.target(config),
            shortlist=None if self.shortlist is None else len(self.shortlist),
        )


def read_checkpoint(
    source: Path,
    limits: TokenLimits = UNLIMITED,
    companions: CompanionFiles = NO_COMPANIONS,
    format_name: str | None = None,
) -> Checkpoint:
    """Read the checkpoint in `source`, a directory or a file; CheckpointError says what is wrong with it.

    Its format is recognised unless `format_name` says what it is.
    """
    opened = open_source(source, limits, companions, format_name)
    config, plan = opened.config, opened.tokenizer_plan
    _check_tokens(opened.tokens, config)
    weights = open_checkpoint_weights(config, opened.weights, opened.weight_names)
    return Checkpoint(
        source=source,
        config=config,
        weights=weights,
        card=ModelCard(
            name=opened.name,
            architecture=opened.architecture,
            parameters=sum(parameter.numel() for parameter in weights.structure.parameters()),
            source_language=plan.source_language,
            target_language=plan.target_language,
        ),
        tokens=opened.tokens,
        generation=opened.generation,
        tokenizer_plan=plan,
        limits=limits,
        reference=opened.reference,
        tasks=opened.tasks,
        files=opened.files,
    )


def _check_tokens(tokens: SpecialTokens, config: TransformerConfig) -> None:
    ends = [("eos", end) for end in tokens.ends]
    for name, token in (("pad", tokens.pad), *ends, ("decoder_start", tokens.decoder_start)):
        if not 0 <= token < config.target_vocabulary:
            raise CheckpointError(f"the {name} token {token} is not in the target vocabulary of {config.target_vocabulary}")
