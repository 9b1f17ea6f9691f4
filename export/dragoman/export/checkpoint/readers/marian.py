"""Marian as Hugging Face stores it: any Helsinki-NLP/opus-mt directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.readers.bart_like import BartLikeReader
from dragoman.export.checkpoint.settings import JsonSettings
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan, marian_plan
from dragoman.export.transformer import TransformerConfig

__all__ = ["MarianReader"]


class MarianReader(BartLikeReader):
    """The defaults of TransformerConfig, with embeddings that may be one, two or three."""

    architectures: ClassVar[tuple[str, ...]] = ("MarianMTModel",)

    def __init__(self, settings: JsonSettings, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(settings, tensors)
        self._one_vocabulary = settings.flag("share_encoder_decoder_embeddings", True)
        self.shared = self._one_vocabulary and self.shared

    def config(self, limits: TokenLimits) -> TransformerConfig:
        number = self.settings.number
        vocabularies: dict[str, Any] = {
            "source_vocabulary": number("vocab_size"),
            "target_vocabulary": number("vocab_size" if self._one_vocabulary else "decoder_vocab_size"),
        }
        return dataclasses.replace(super().config(limits), **vocabularies)

    def default_start(self, pad: int, generation: JsonSettings) -> int:  # noqa: ARG002
        return pad

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        return marian_plan(directory, config, tokens)
