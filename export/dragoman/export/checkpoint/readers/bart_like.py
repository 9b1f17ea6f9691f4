"""What BART, mBART, M2M100, Pegasus and Marian have in common in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.generation import end_tokens
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.export.checkpoint.renaming import BART, renamed
from dragoman.export.checkpoint.settings import JsonSettings
from dragoman.export.transformer import TransformerConfig
from dragoman.export.transformer.config import Activation

__all__ = ["ACTIVATIONS", "BartLikeReader"]

SHARED, ENCODER, DECODER = (f"model.{owner}.weight" for owner in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"))
OUTPUT = "lm_head.weight"

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


class BartLikeReader:
    """Names and settings; a family overrides `variant` for its peculiarities."""

    architectures: ClassVar[tuple[str, ...]] = ()
    variant: ClassVar[dict[str, Any]] = {}
    default_activation: ClassVar[str] = "gelu"

    def __init__(self, settings: JsonSettings, tensors: Mapping[str, Tensor]) -> None:
        self.settings, self._tensors = settings, tensors
        self.tied = settings.flag("tie_word_embeddings", True)
        self.shared = self.tied or self._is_equal(ENCODER, DECODER)

    def config(self, limits: TokenLimits) -> TransformerConfig:  # noqa: ARG002 - these models have limits of their own
        number = self.settings.number
        positions, vocabulary = number("max_position_embeddings"), number("vocab_size")
        common: dict[str, Any] = {
            "source_vocabulary": vocabulary,
            "target_vocabulary": vocabulary,
            "shared_embeddings": self.shared,
            "tied_output": self.tied,
        }
        return TransformerConfig(
            d_model=number("d_model"),
            encoder_layers=number("encoder_layers"),
            decoder_layers=number("decoder_layers"),
            encoder_heads=number("encoder_attention_heads"),
            decoder_heads=number("decoder_attention_heads"),
            encoder_feed_forward=number("encoder_ffn_dim"),
            decoder_feed_forward=number("decoder_ffn_dim"),
            max_source_positions=positions,
            max_target_positions=positions,
            activation=self.settings.choice("activation_function", ACTIVATIONS, self.default_activation),
            embedding_scale=number("d_model") ** 0.5 if self.settings.flag("scale_embedding", False) else 1.0,
            **{**common, **self.variant},
        )

    def weight_names(self, ours: str) -> tuple[str, ...]:
        copies = (SHARED, ENCODER, DECODER, OUTPUT)
        special = {
            "source_embedding.weight": copies if self.shared and self.tied else self._own(ENCODER),
            "target_embedding.weight": (*self._own(DECODER), *((OUTPUT,) if self.tied else ())),
            "output.weight": (OUTPUT,),
            "output.bias": ("final_logits_bias",),
        }
        if ours in special:
            return special[ours]
        return ("model." + renamed(ours, BART),)

    def is_optional(self, ours: str) -> bool:
        return ours == "output.bias"

    def is_ignored(self, theirs: str) -> bool:
        if theirs in (SHARED, DECODER):  # without ties both stacks have embeddings of their own, which may be equal
            return not self.tied
        return theirs in ("encoder.version", "decoder.version", "model.encoder.version", "model.decoder.version")

    def _own(self, name: str) -> tuple[str, ...]:
        """The stack's own embedding; files of older versions have one for both."""
        return (SHARED if name not in self._tensors and SHARED in self._tensors else name,)

    def _is_equal(self, one: str, other: str) -> bool:
        tensors = self._tensors
        return one not in tensors or other not in tensors or torch.equal(tensors[one], tensors[other])

    def tokens(self, generation: JsonSettings) -> SpecialTokens:
        pad, ends = self._token("pad_token_id", generation), end_tokens(generation, self.settings)
        start = self._token("decoder_start_token_id", generation)
        if pad is None or not ends:
            raise CheckpointError(f"{self.settings.file} must name pad_token_id and eos_token_id")
        if start is None:
            start = self.default_start(pad, generation)
        return SpecialTokens(pad=pad, eos=ends[0], decoder_start=start, other_eos=ends[1:])

    def default_start(self, pad: int, generation: JsonSettings) -> int:
        """The start token of a checkpoint that names none: Hugging Face takes the one that begins sentences."""
        bos = self._token("bos_token_id", generation)
        return pad if bos is None else bos

    def _token(self, name: str, generation: JsonSettings) -> int | None:
        token = generation.token(name)
        return self.settings.token(name) if token is None else token
