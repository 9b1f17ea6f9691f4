"""T5 1.0 and 1.1, Flan-T5, MADLAD-400, ByT5, mT5 and UMT5."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_settings
from dragoman.export.checkpoint.generation import end_tokens
from dragoman.export.checkpoint.limits import DEFAULT_TOKENS, TokenLimits
from dragoman.export.checkpoint.readers.bart_like import ACTIVATIONS
from dragoman.export.checkpoint.renaming import Rules, renamed
from dragoman.export.checkpoint.settings import JsonSettings
from dragoman.export.checkpoint.tokenizer_plan import TokenizerPlan, bytes_plan, google_plan
from dragoman.export.transformer import TransformerConfig

__all__ = ["T5Reader"]

RENAMED: Rules = (
    (r"coder\.relative_biases\.(\d+)\.", r"coder.block.\1.layer.0.SelfAttention.relative_attention_bias."),
    (r"coder\.final_norm\.", "coder.final_layer_norm."),
    (r"\.layers\.", ".block."),
    (r"\.self_attention_norm\.", ".layer.0.layer_norm."),
    (r"\.self_attention\.", ".layer.0.SelfAttention."),
    (r"\.cross_attention_norm\.", ".layer.1.layer_norm."),
    (r"\.cross_attention\.", ".layer.1.EncDecAttention."),
    (r"(encoder.*)\.feed_forward_norm\.", r"\1.layer.1.layer_norm."),
    (r"(decoder.*)\.feed_forward_norm\.", r"\1.layer.2.layer_norm."),
    (r"(encoder.*)\.feed_forward\.", r"\1.layer.1.DenseReluDense."),
    (r"(decoder.*)\.feed_forward\.", r"\1.layer.2.DenseReluDense."),
    (r"\.(query|key|value)\.", lambda match: f".{match[1][0]}."),
    (r"\.output\.", ".o."),
    (r"\.outer\.", ".wo."),
)

UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""In old files of T5; cross-attention has no positions."""


class T5Reader:
    """Relative positions, RMS norms, no biases."""

    architectures: ClassVar[tuple[str, ...]] = (
        "T5ForConditionalGeneration",
        "T5WithLMHeadModel",
        "MT5ForConditionalGeneration",
        "UMT5ForConditionalGeneration",
    )

    def __init__(self, settings: JsonSettings, tensors: Mapping[str, Tensor]) -> None:
        self.settings = settings
        self._kind = settings.text("model_type", "t5")
        self._tied = _is_tied(tensors)
        self._activation, self._gated = self._feed_forward()

    def config(self, limits: TokenLimits) -> TransformerConfig:
        number, width = self.settings.number, self.settings.number("d_model")
        heads = number("num_heads")
        return TransformerConfig(
            d_model=width,
            encoder_layers=number("num_layers"),
            decoder_layers=number("num_decoder_layers", number("num_layers")),
            encoder_heads=heads,
            decoder_heads=heads,
            encoder_feed_forward=number("d_ff"),
            decoder_feed_forward=number("d_ff"),
            source_vocabulary=number("vocab_size"),
            target_vocabulary=number("vocab_size"),
            max_source_positions=limits.max_source_tokens or DEFAULT_TOKENS,
            max_target_positions=limits.max_target_tokens or DEFAULT_TOKENS,
            attention_width=heads * number("d_kv"),
            positions="relative",
            relative_buckets=number("relative_attention_num_buckets", 32),
            relative_max_distance=number("relative_attention_max_distance", 128),
            relative_per_layer=self._kind == "umt5",
            pre_norm=True,
            norm="rms",
            norm_epsilon=self.settings.real("layer_norm_epsilon", 1e-6),
            final_norm=True,
            activation=ACTIVATIONS[self._activation],
            gated=self._gated,
            attention_bias=False,
            feed_forward_bias=False,
            attention_scale=1.0,
            tied_output=self._tied,
            output_bias=False,
            output_scale=width**-0.5 if self._scales_output() else 1.0,
        )

    def weight_names(self, ours: str) -> tuple[str, ...]:
        copies = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
        special = {
            "source_embedding.weight": (*copies, "lm_head.weight") if self._tied else copies,
            "output.weight": ("lm_head.weight",),
        }
        if ours in special:
            return special[ours]
        inner = {".gate.": ".wi_0.", ".inner.": ".wi_1."} if self._gated else {".inner.": ".wi."}
        name = renamed(ours, RENAMED)
        for old, new in inner.items():
            name = name.replace(old, new)
        return (name,)

    def is_optional(self, ours: str) -> bool:  # noqa: ARG002 - a T5 without one of its weights is broken
        return False

    def is_ignored(self, theirs: str) -> bool:
        return theirs == UNUSED

    def tokens(self, generation: JsonSettings) -> SpecialTokens:
        def token(name: str, default: int) -> int:
            for settings in (generation, self.settings):
                found = settings.token(name)
                if found is not None:
                    return found
            return default

        pad, ends = token("pad_token_id", 0), end_tokens(generation, self.settings, default=1)
        start = token("decoder_start_token_id", pad)
        return SpecialTokens(pad=pad, eos=ends[0], decoder_start=start, other_eos=ends[1:])

    def tokenizer(self, directory: Path, config: TransformerConfig, tokens: SpecialTokens) -> TokenizerPlan:
        settings = read_settings(directory / "tokenizer_config.json")
        if (settings.text("tokenizer_class") or "").startswith("ByT5"):
            return bytes_plan(config, tokens)
        return google_plan(directory, config, tokens, offset=0, unknown=None)

    def _feed_forward(self) -> tuple[str, bool]:
        """`gated-gelu` means the tanh form, as Hugging Face reads it; otherwise the last word is the activation."""
        projection = self.settings.text("feed_forward_proj", "relu") or "relu"
        words = projection.split("-")
        activation = "gelu_new" if projection == "gated-gelu" else words[-1]
        if activation not in ACTIVATIONS or len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
            raise CheckpointError(f"feed_forward_proj {projection!r} in {self.settings.file} is not known")
        return activation, words[0] == "gated"

    def _scales_output(self) -> bool:
        """Whether hidden states are multiplied by d_model^-½ before the output projection.

        transformers 5 writes the truth as scale_decoder_outputs, and `tie_word_embeddings: true` whatever holds; before
        it, T5 scaled where the embeddings were tied. mT5 never does; UMT5 always does in transformers 5, which we follow.
        """
        if self._kind in ("mt5", "umt5"):
            return self._kind == "umt5"
        if "scale_decoder_outputs" in self.settings:
            return self.settings.flag("scale_decoder_outputs", True)
        return self.settings.flag("tie_word_embeddings", True)


def _is_tied(tensors: Mapping[str, Tensor]) -> bool:
    """The weights tell: config.json of newer versions says "tied" always."""
    output = next((tensors[name] for name in ("lm_head.weight",) if name in tensors), None)
    shared = next((tensors[n] for n in ("shared.weight", "decoder.embed_tokens.weight") if n in tensors), None)
    if output is None or shared is None:
        return True
    return output.shape == shared.shape and torch.equal(output, shared)
