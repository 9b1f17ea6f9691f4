"""M2M100, and NLLB-200 and SMALL-100, which are the same model with other tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from dragoman.bundle.manifest import SpecialTokens
from dragoman.export.checkpoint.files import read_settings
from dragoman.export.checkpoint.language_codes import M2M100, NLLB, WMT21
from dragoman.export.checkpoint.readers.bart_like import BartLikeReader
from dragoman.export.checkpoint.tokenizer_plan import LanguageScheme, TokenizerPlan, fairseq_plan, m2m100_plan
from dragoman.export.transformer import TransformerConfig

__all__ = ["M2M100Reader"]

SMALL_100_CODE = "tokenization_small100.py"
"""SMALL-100 comes with its tokenizer's code, and not always with a name for it in its settings."""


class M2M100Reader(BartLikeReader):
    """fairseq's sinusoids with an offset of two, norms before the layers and after the last."""

    architectures: ClassVar[tuple[str, ...]] = ("M2M100ForConditionalGeneration",)
    variant: ClassVar[dict[str, Any]] = {
        "positions": "fairseq_sinusoidal",
        "position_offset": 2,
        "pre_norm": True,
        "final_norm": True,
        "output_bias": False,
    }
    default_activation: ClassVar[str] = "relu"

    def is_ignored(self, theirs: str) -> bool:
        return super().is_ignored(theirs) or theirs.endswith(("embed_positions.weights", "embed_positions._float_tensor"))

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        settings = read_settings(directory / "tokenizer_config.json")
        kind = settings.text("tokenizer_class") or ""
        if kind.startswith("Nllb") or not (directory / "vocab.json").is_file():
            place: Literal["before", "after"] = "after" if settings.flag("legacy_behaviour", False) else "before"
            return fairseq_plan(directory, config, tokens, LanguageScheme(NLLB, source=place, target="forced_bos"))
        codes = WMT21 if settings.text("language_codes") == "wmt21" else M2M100
        named = f"{kind} {self.settings.text('tokenizer_class') or ''}".lower().replace("-", "")
        if "small100" in named or (directory / SMALL_100_CODE).is_file():
            scheme = LanguageScheme(codes, source="none", target="source_before", form="__{}__")
        else:
            scheme = LanguageScheme(codes, source="before", target="forced_bos", form="__{}__")
        return m2m100_plan(directory, config, tokens, scheme)
