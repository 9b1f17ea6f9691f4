"""mBART and mBART-50: BART with the norms before the layers, and a token for each language."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.checkpoint.files import read_settings
from dragoman.export.checkpoint.language_codes import MBART, MBART50
from dragoman.export.checkpoint.readers.bart import BartReader
from dragoman.export.checkpoint.tokenizer_plan import LanguageScheme, TokenizerPlan, fairseq_plan
from dragoman.export.transformer import TransformerConfig

__all__ = ["MBartReader"]


class MBartReader(BartReader):
    """mBART (25 languages) starts the target with its language, mBART-50 forces it as the first token."""

    architectures: ClassVar[tuple[str, ...]] = ("MBartForConditionalGeneration",)
    variant: ClassVar[dict[str, Any]] = {**BartReader.variant, "pre_norm": True, "final_norm": True}

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        settings = read_settings(directory / "tokenizer_config.json")
        kind = settings.text("tokenizer_class") or self.settings.text("tokenizer_class") or ""
        is_50 = "50" in kind if kind.startswith("MBart") else tokens.decoder_start == tokens.eos
        if is_50:
            scheme = LanguageScheme(MBART50, source="before", target="forced_bos")
        else:
            scheme = LanguageScheme(MBART, source="after", target="decoder_start")
        return fairseq_plan(directory, config, tokens, scheme)
