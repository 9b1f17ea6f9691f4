"""ONNX Runtime's fused operators: the cache written in place, beams reordered by who owns it.

Only in-place decoding in ONNX Runtime without the custom operators needs it; `native` replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Precision, Role
from dragoman.export.lowering.cpu.quantise import quantise_dynamically
from dragoman.export.lowering.half import stored_in_half
from dragoman.export.lowering.protocol import Attributes, Calibration
from dragoman.export.lowering.signature import Signature, padded_encoder, step_decoder
from dragoman.export.lowering.step_modules import DecoderGraph, EncoderGraph, step_arguments
from dragoman.export.transformer import AttentionShape, KeyValue, TorchOperators, Transformer, TransformerConfig
from dragoman.export.transformer.attention import cached_attention
from dragoman.export.transformer.linear import RMSNorm
from dragoman.export.transformer.operators import Norm

__all__ = ["CpuLowering"]


@dataclass(frozen=True, slots=True)
class CpuLowering:
    """GroupQueryAttention and MultiHeadAttention, products quantised as they come."""

    name: LoweringName = "cpu"
    in_place_cache: bool = True
    max_candidates: None = None

    def needs_calibration(self, precision: Precision) -> bool:  # noqa: ARG002
        return False

    def prepared(self, model: Transformer, precision: Precision, calibration: Calibration) -> Transformer:  # noqa: ARG002
        return model

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        if role == "encoder":
            return padded_encoder(config)
        return step_decoder(config, gathers_parents=False, max_candidates=None)

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        if role == "encoder":
            return EncoderGraph(prepared, FusedOperators())
        return DecoderGraph(prepared, FusedOperators(), _best)

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:
        return step_arguments(role, by_name)

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:  # noqa: ARG002
        if precision == "fp16":  # on the CPU float16 is slower than float32: it is only a way of storing
            stored_in_half(traced.graph)
        elif precision == "int8":
            quantise_dynamically(traced.graph)


class FusedOperators(TorchOperators):
    """They exist only in the exported graph: in eager torch they compute nothing."""

    def encoder_attention(self, packed: Tensor, lengths: Tensor, shape: AttentionShape, bias: Tensor | None) -> Tensor:
        query, key, value = packed.chunk(3, dim=-1)
        return _multi_head_attention(query, KeyValue(key, value), lengths, shape, bias)

    def step_attention(
        self, packed: Tensor, past: KeyValue, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        if shape.head_dim % 8:  # GroupQueryAttention refuses it; the portable form is right in place, too
            return cached_attention(packed, past, positions, shape, bias)
        groups, width, packed_width = packed.shape
        rows, cache = past.key.shape[0], past.key.shape[2]
        seen, key, value = _fused(
            "GroupQueryAttention",
            (
                packed.reshape(-1, 1, packed_width),  # one query a row
                None,  # key and value are in the packed query
                None,
                past.key,
                past.value,
                positions.reshape(-1),  # "seqlens_k": tokens in the row's cache before this one
                torch.scalar_tensor(cache, dtype=torch.int32),  # the most that any row may see
                None,  # rotary tables and ids: this family has none
                None,
                None,
                bias,
            ),
            {"num_heads": shape.heads, "kv_num_heads": shape.heads, "scale": shape.scale},
            shapes=[(rows, 1, shape.width), past.key.shape, past.value.shape],
            dtype=packed.dtype,
        )
        return seen.reshape(groups, width, shape.width), KeyValue(key, value)

    def cross_attention(self, query: Tensor, memory: KeyValue, lengths: Tensor, shape: AttentionShape) -> Tensor:
        return _multi_head_attention(query, memory, lengths, shape, None)

    def add_norm(self, x: Tensor, update: Tensor, norm: Norm) -> Tensor:
        if isinstance(norm, RMSNorm):
            inputs, kind = (x, update, norm.weight), "SkipSimplifiedLayerNormalization"
            return _fused(kind, inputs, {"epsilon": norm.epsilon}, shapes=[x.shape], dtype=x.dtype)[0]
        # Not an Add: ONNX Runtime would join it with the norm to SkipLayerNormalization, which it computes one number at
        # a time. Sum and LayerNormalization together take a fifth of its time (128 rows of 256: 35 µs instead of 193).
        return norm(torch.onnx.ops.symbolic("Sum", (x, update), dtype=x.dtype, shape=x.shape))


def _best(logits: Tensor, candidates: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    log_probs, tokens = torch.onnx.ops.symbolic_multi_out(
        "TopK",
        (logits.log_softmax(-1), candidates),
        {"axis": -1, "largest": 1, "sorted": 1},
        dtypes=[logits.dtype, torch.int64],
        shapes=[(logits.shape[0], 2), (logits.shape[0], 2)],  # the 2 stands for a number only the runtime knows
    )
    return tokens, log_probs, logits.gather(-1, tokens)


def _multi_head_attention(
    query: Tensor, keys: KeyValue, lengths: Tensor, shape: AttentionShape, bias: Tensor | None
) -> Tensor:
    """softmax(QKᵀ · scale + bias) V of all heads; keys beyond a row's length are padding."""
    inputs = (query, keys.key, keys.value, None, lengths, bias)
    attributes: Attributes = {"num_heads": shape.heads, "scale": shape.scale}
    return _fused("MultiHeadAttention", inputs, attributes, shapes=[query.shape], dtype=query.dtype)[0]


def _fused(
    operator: str,
    inputs: Sequence[Tensor | None],
    attributes: Attributes,
    shapes: Sequence[Sequence[int | torch.SymInt]],
    dtype: torch.dtype,
) -> Sequence[Tensor]:
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return torch.onnx.ops.symbolic_multi_out(
        f"com.microsoft::{operator}", inputs, attributes, dtypes=[dtype] * len(shapes), shapes=shapes, version=1
    )
