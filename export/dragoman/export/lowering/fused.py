"""Operators of our own (`kernels/`): tokens without padding, caches in which a row's past may lie anywhere.

They exist only in the exported graph: in eager torch they compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.errors import ExportError
from dragoman.export.lowering.protocol import Attributes, Best, Cells, Sources
from dragoman.export.transformer.linear import LayerNorm, RMSNorm

if TYPE_CHECKING:
    from dragoman.export.transformer.config import AttentionShape, TransformerConfig

__all__ = ["DOMAIN", "FusedLowering", "can_be_fused"]

DOMAIN = "dragoman"
_LANES = 8
"""What the kernels compute at once; the sizes of rows and heads are multiples of it."""


def can_be_fused(config: TransformerConfig) -> bool:
    """Whether our operators can compute this model."""
    heads = (config.encoder_attention.head_dim, config.decoder_attention.head_dim)
    layers = (config.encoder_feed_forward, config.decoder_feed_forward)
    return (
        config.positions != "relative"
        and config.norm == "layer"
        and not config.pre_norm
        and not any(size % _LANES for size in (config.d_model, *heads, *layers))
    )


@dataclass(frozen=True, slots=True)
class FusedLowering:
    """x is (tokens, d_model) in the encoder, (rows, d_model) in the decoder: products have two dimensions everywhere."""

    name: LoweringName = "fused"
    gathers_parents: bool = False
    max_candidates: None = None

    def encoder_attention(self, packed: Tensor, lengths: Sources, shape: AttentionShape, bias: Tensor | None) -> Tensor:
        _refuse(bias)
        return _operator("SourceAttention", (packed, *lengths), shape, packed)

    def step_attention(
        self, packed: Tensor, past: Cells, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, Cells]:
        _refuse(bias)
        return _operator("StepAttention", (packed, past.cache, past.of, positions), shape, packed, past.layer), past

    def cross_attention(self, query: Tensor, memory: Cells, lengths: Tensor, shape: AttentionShape) -> Tensor:
        return _operator("CrossAttention", (query, memory.cache, memory.of, lengths), shape, query, memory.layer)

    def add_norm(self, x: Tensor, update: Tensor, norm: LayerNorm | RMSNorm) -> Tensor:
        if isinstance(norm, RMSNorm):
            raise ExportError("our operators have no RMSNorm")
        inputs = (x, update, norm.weight, norm.bias)
        attributes: Attributes = {"epsilon": norm.epsilon}
        return torch.onnx.ops.symbolic(f"{DOMAIN}::AddNorm", inputs, attributes, dtype=x.dtype, shape=x.shape, version=1)

    def best(self, logits: Tensor, candidates: Tensor | None) -> Best:
        shape = (logits.shape[0], 2)  # the 2 stands for a number only the runtime knows
        tokens, log_probs, best_logits = torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::BestTokens",
            (logits, candidates),
            dtypes=[torch.int64, logits.dtype, logits.dtype],
            shapes=[shape, shape, shape],
            version=1,
        )
        return Best(tokens, log_probs, best_logits)


def _operator(name: str, inputs: Sequence[Tensor], shape: AttentionShape, x: Tensor, layer: int | None = None) -> Tensor:
    attributes: Attributes = {"heads": shape.heads, "head_dim": shape.head_dim, "scale": shape.scale}
    if layer is not None:
        attributes["layer"] = layer
    size = (x.shape[0], shape.width)
    return torch.onnx.ops.symbolic(f"{DOMAIN}::{name}", inputs, attributes, dtype=x.dtype, shape=size, version=1)


def _refuse(bias: Tensor | None) -> None:
    if bias is not None:
        raise ExportError("our operators have no relative positions")
