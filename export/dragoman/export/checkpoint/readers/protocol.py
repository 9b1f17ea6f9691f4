"""The interface of a reader for one architecture."""

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
    """Maps an architecture's names of settings, weights and tokens. Made from config.json and the names of the weights."""

    architectures: ClassVar[tuple[str, ...]]

    def __init__(self, settings: JsonSettings, tensors: Mapping[str, Tensor]) -> None: ...

    def config(self, limits: TokenLimits) -> TransformerConfig:
        """The TransformerConfig of the same model."""

    def tokens(self, generation: JsonSettings) -> SpecialTokens:
        """The ids the search must know, except the unknown token's, which the tokenizer knows."""

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        """The plan of the bundle's tokenizer; its files exist and agree with the embedding."""
