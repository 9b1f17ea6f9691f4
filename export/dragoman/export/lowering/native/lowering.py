"""The native lowering: the model's layers are replaced by ones that call the custom operators, and then traced."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import onnx_ir as ir
from torch import Tensor, nn

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Precision, Role
from dragoman.export.lowering.native import operators
from dragoman.export.lowering.native.half import stored_in_half
from dragoman.export.lowering.native.modules import (
    DistanceBias,
    TiledEmbedding,
    TiledFeedForward,
    TiledLinear,
    TiledOutput,
)
from dragoman.export.lowering.protocol import Calibration
from dragoman.export.lowering.signature import Signature
from dragoman.export.transformer import AttentionShape, Transformer, TransformerConfig
from dragoman.export.transformer.layers import DecoderLayer, Step
from dragoman.export.transformer.linear import FeedForward, Linear, Map, RMSNorm
from dragoman.export.transformer.operators import Norm
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = ["NativeLowering"]


class Sources(NamedTuple):
    """Where each source lies among the tokens of all, (sources,) each."""

    starts: Tensor
    lengths: Tensor


class LayerCache(NamedTuple):
    """One layer of a cache (layers, slots, 2 · width), and which of its KV slots a row or a group has.

    `slots` is (rows, room) in the self-attention cache; in the cross-attention cache the first of each group, (groups,).
    """

    cache: Tensor
    slots: Tensor
    layer: int


@dataclass(frozen=True, slots=True)
class NativeLowering:
    """x is (tokens, d_model) in the encoder, (rows, d_model) in the decoder: products have two dimensions everywhere."""

    name: LoweringName = "native"
    max_candidates: None = None

    def needs_calibration(self, precision: Precision) -> bool:  # noqa: ARG002 - rows are quantised as they come
        return False

    def prepared(self, model: Transformer, precision: Precision, calibration: Calibration) -> Transformer:  # noqa: ARG002
        return tiled(model, quantised=precision == "int8")

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        return _encoder_signature(config) if role == "encoder" else _decoder_signature(config)

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        return EncoderGraph(prepared) if role == "encoder" else DecoderGraph(prepared)

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return dict(by_name)

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:  # noqa: ARG002
        traced.graph.opset_imports[operators.DOMAIN] = 1
        if precision == "fp16":  # on the CPU float16 is slower than float32: it is only a way of storing
            stored_in_half(traced.graph)


class NativeOperators:
    """Sources one after the other, without padding; a cache that a step writes to."""

    def embed(self, embedding: Map, tokens: Tensor, scale: float, table: PositionTable | None, positions: Tensor) -> Tensor:
        weight = cast(TiledEmbedding, embedding).table.weight()
        if table is None:
            return operators.embed(weight, tokens, scale)
        return operators.embed(weight, tokens, scale, positions, table.weight, table.offset)

    def source_bias(self, bias: RelativeBias, positions: Tensor) -> Tensor:  # noqa: ARG002
        return cast(DistanceBias, bias).table

    def step_bias(self, bias: RelativeBias, past: LayerCache, positions: Tensor) -> Tensor:  # noqa: ARG002
        return cast(DistanceBias, bias).table

    def encoder_attention(self, packed: Tensor, lengths: Sources, shape: AttentionShape, bias: Tensor | None) -> Tensor:
        return operators.source_attention(packed, lengths.starts, lengths.lengths, shape, bias)

    def step_attention(
        self, packed: Tensor, past: LayerCache, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, LayerCache]:
        return operators.step_attention(packed, past.cache, past.slots, positions, past.layer, shape, bias), past

    def cross_attention(self, query: Tensor, memory: LayerCache, lengths: Tensor, shape: AttentionShape) -> Tensor:
        return operators.cross_attention(query, memory.cache, memory.slots, lengths, memory.layer, shape)

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        return operators.norm(x, *_parts(norm), norm.epsilon, rms=isinstance(norm, RMSNorm))

    def add_norm(self, x: Tensor, update: Tensor, norm: Norm) -> Tensor:
        return operators.add_norm(x, update, *_parts(norm), norm.epsilon, rms=isinstance(norm, RMSNorm))

    def add_then_norm(self, x: Tensor, update: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        return operators.add_then_norm(x, update, *_parts(norm), norm.epsilon, rms=isinstance(norm, RMSNorm))


class EncoderGraph(nn.Module):
    """Sources without padding to the KV slots of every decoder layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, source_ids: Tensor, source_positions: Tensor, source_starts: Tensor, source_lengths: Tensor
    ) -> list[Tensor]:
        model, sources = self.model, Sources(source_starts, source_lengths)
        encoded = model.encoder(model.source_embedding, source_ids, source_positions, sources, NativeOperators())
        return [layer.cross_attention.key_value(encoded) for layer in cast("Iterable[DecoderLayer]", model.decoder.layers)]


class DecoderGraph(nn.Module):
    """One step: one token a row, and caches that the step itself writes to, to the best next tokens."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(  # noqa: PLR0917 - the graph's inputs
        self,
        tokens: Tensor,  # (rows,)
        positions: Tensor,  # (rows,)
        slots: Tensor,  # (rows, room)
        self_cache: Tensor,  # (layers, self_slots, 2 · width)
        source_starts: Tensor,  # (groups,)
        source_lengths: Tensor,  # (groups,)
        cross_cache: Tensor,  # (layers, cross_slots, 2 · width)
        candidates: Tensor,  # (1,)
        asked: Tensor,  # (rows, asked)
    ) -> list[Tensor]:
        model, layers = self.model, range(self.model.config.decoder_layers)
        memories = [LayerCache(cross_cache, source_starts, layer) for layer in layers]
        pasts = [LayerCache(self_cache, slots, layer) for layer in layers]
        step = Step(positions, source_lengths, NativeOperators())
        hidden, _ = model.decoder(model.target_embedding, tokens, memories, pasts, step)
        return cast(TiledOutput, model.output).best(hidden, candidates, asked)


def tiled(model: Transformer, *, quantised: bool) -> Transformer:
    """A copy with weights in tiles. One layer at a time is converted; norms, biases and positions are shared."""
    output = TiledOutput(model.output, quantised=quantised)
    is_tied = model.output.weight is model.target_embedding.weight
    target = TiledEmbedding(output.table) if is_tied else TiledEmbedding.of(model.target_embedding, quantised=quantised)
    is_shared = model.source_embedding is model.target_embedding
    source = target if is_shared else TiledEmbedding.of(model.source_embedding, quantised=quantised)
    replaced = {"output": output, "source_embedding": source, "target_embedding": target}
    whole = copy.copy(model)
    whole._modules = {
        name: replaced[name] if name in replaced else _converted(child, model.config, quantised)
        for name, child in model._modules.items()  # a shared embedding under both of its names
        if child is not None
    }
    return whole


def _converted(module: nn.Module, config: TransformerConfig, quantised: bool) -> nn.Module:
    if isinstance(module, FeedForward):
        return TiledFeedForward(module, config.activation, quantised=quantised)
    if isinstance(module, Linear):
        return TiledLinear(module, quantised=quantised)
    if isinstance(module, RelativeBias):
        return DistanceBias(module)
    if not module._modules:
        return module
    whole = copy.copy(module)
    whole._modules = {
        name: None if child is None else _converted(child, config, quantised) for name, child in module._modules.items()
    }
    return whole


def _parts(norm: Norm) -> tuple[Tensor, Tensor | None]:
    return norm.weight, None if isinstance(norm, RMSNorm) else norm.bias


def _encoder_signature(config: TransformerConfig) -> Signature:
    """Sources one after the other, without padding."""
    return Signature(
        inputs={
            "source_ids": ("tokens",),
            "source_positions": ("tokens",),
            "source_starts": ("sources",),
            "source_lengths": ("sources",),
        },
        outputs={f"cross_{layer}": ("tokens", 2 * config.decoder_attention.width) for layer in range(config.decoder_layers)},
    )


def _decoder_signature(config: TransformerConfig) -> Signature:
    """Caches of all layers, in KV slots of one token's key and value; which slots are a row's past is an input."""
    layers, slot = config.decoder_layers, 2 * config.decoder_attention.width
    best: tuple[int | str, ...] = ("rows", "k")
    return Signature(
        inputs={
            "tokens": ("rows",),
            "positions": ("rows",),
            "slots": ("rows", "room"),
            "self_cache": (layers, "self_slots", slot),
            "source_starts": ("groups",),
            "source_lengths": ("groups",),
            "cross_cache": (layers, "cross_slots", slot),
            "candidates": (1,),
            "asked": ("rows", "asked"),
        },
        outputs={"best_tokens": best, "best_log_probs": best, "best_logits": best},
    )
