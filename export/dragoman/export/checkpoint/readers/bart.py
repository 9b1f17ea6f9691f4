"""BART: translation and summarisation checkpoints with a byte-level vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.checkpoint.readers.bart_like import BartLikeReader
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan, byte_level_plan
from dragoman.export.transformer import TransformerConfig

__all__ = ["BartReader"]


class BartReader(BartLikeReader):
    """Learned positions with an offset of two, and a norm on the embedding."""

    architectures: ClassVar[tuple[str, ...]] = ("BartForConditionalGeneration",)
    variant: ClassVar[dict[str, Any]] = {"positions": "learned", "position_offset": 2, "embedding_norm": True}

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        first = self.settings.token("bos_token_id")
        return byte_level_plan(directory, config, tokens, begin=0 if first is None else first)
