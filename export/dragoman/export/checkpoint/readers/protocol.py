"""What one architecture knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Protocol

from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.settings import JsonSettings
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan
from dragoman.export.checkpoint.weights import WeightNames
from dragoman.export.transformer import TransformerConfig

__all__ = ["Reader"]


class Reader(WeightNames, Protocol):
    """How an architecture's settings, weights and tokens are called. Made from config.json and the weights' names."""

    architectures: ClassVar[tuple[str, ...]]

    def __init__(self, settings: JsonSettings, tensors: Mapping[str, Tensor]) -> None: ...

    def config(self, limits: TokenLimits) -> TransformerConfig:
        """Our configuration of the same model."""

    def tokens(self, generation: JsonSettings) -> SpecialTokens:
        """The ids the search must know, except the unknown token's, which the tokenizer knows."""

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        """What of the checkpoint's files becomes the bundle's tokenizer; all there and agreeing with the embedding."""
