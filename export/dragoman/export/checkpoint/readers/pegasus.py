"""Pegasus: summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.checkpoint.readers.bart_like import BartLikeReader
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan, google_plan
from dragoman.export.transformer import TransformerConfig

__all__ = ["PegasusReader"]

OFFSET = 103
"""Ids before the first piece: padding, end, two masks and 99 unknown tokens that only pre-training used."""


class PegasusReader(BartLikeReader):
    """Marian with the norms before the layers and after the last."""

    architectures: ClassVar[tuple[str, ...]] = ("PegasusForConditionalGeneration",)
    variant: ClassVar[dict[str, Any]] = {"pre_norm": True, "final_norm": True}

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        return google_plan(directory, config, tokens, offset=OFFSET, unknown=OFFSET + 2)
