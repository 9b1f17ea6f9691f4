"""The native lowering: the model's layers are replaced by ones that call the custom operators, and then traced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import onnx_ir as ir
from torch import Tensor, nn

from dragoman.bundle.manifest import Lowering as LoweringName
from dragoman.bundle.manifest import Precision, Role
from dragoman.export.lowering.native import operators
from dragoman.export.lowering.native.forced import ForcedGraph, forced_arguments, forced_signature
from dragoman.export.lowering.native.half import stored_in_half
from dragoman.export.lowering.native.modules import (
    DistanceBias,
    TiledEmbedding,
    TiledFeedForward,
    TiledLinear,
    TiledOutput,
)
from dragoman.export.lowering.native.native_operators import LayerCache, NativeOperators, Sources
from dragoman.export.lowering.protocol import Calibration
from dragoman.export.lowering.signature import Signature
from dragoman.export.transformer import Transformer, TransformerConfig, WeightSource
from dragoman.export.transformer.layers import DecoderLayer, Step
from dragoman.export.transformer.linear import FeedForward, Linear
from dragoman.export.transformer.model import Embedding
from dragoman.export.transformer.positions import RelativeBias
from dragoman.export.weights import Keep, in_memory

__all__ = ["NativeLowering"]


@dataclass(frozen=True, slots=True)
class NativeLowering:
    """x is (tokens, d_model) in the encoder, (rows, d_model) in the decoder: all products have two dimensions."""

    name: LoweringName = "native"
    max_candidates: None = None

    def needs_calibration(self, precision: Precision) -> bool:  # noqa: ARG002 - rows are quantised as they come
        return False

    def prepared(
        self,
        source: WeightSource,
        precision: Precision,
        calibration: Calibration,  # noqa: ARG002
        keep: Keep,
    ) -> Transformer:
        if precision == "fp16":  # what is written comes after tracing: a half of this, in `finish`
            keep = in_memory
        return tiled(source, quantised=precision == "int8", keep=keep)

    def signature(self, role: Role, config: TransformerConfig) -> Signature:
        return SIGNATURES[role](config)

    def module(self, role: Role, prepared: Transformer) -> nn.Module:
        return GRAPHS[role](prepared)

    def arguments(self, role: Role, by_name: Mapping[str, Any]) -> dict[str, Any]:
        return forced_arguments(by_name) if role == "forced" else dict(by_name)

    def finish(self, traced: ir.Model, role: Role, precision: Precision, calibration: Calibration) -> None:  # noqa: ARG002
        traced.graph.opset_imports[operators.DOMAIN] = 1
        if precision == "fp16":  # on the CPU float16 is slower than float32: it is only a way of storing
            stored_in_half(traced.graph)


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
        scored_tokens: Tensor,  # (rows, scored_tokens)
        shortlists: Tensor | None = None,  # (groups,), where languages have lists
    ) -> list[Tensor]:
        model, layers = self.model, range(self.model.config.decoder_layers)
        memories = [LayerCache(cross_cache, source_starts, layer) for layer in layers]
        pasts = [LayerCache(self_cache, slots, layer) for layer in layers]
        step = Step(positions, source_lengths, NativeOperators())
        hidden, _ = model.decoder(model.target_embedding, tokens, memories, pasts, step)
        return cast(TiledOutput, model.output).best(hidden, candidates, scored_tokens, shortlists)


def tiled(source: WeightSource, *, quantised: bool, keep: Keep) -> Transformer:
    """A copy with weights in tiles, made a layer at a time: its own weights are freed before the next one's are read."""
    model = source.structure
    make = _Tiled(source, quantised=quantised, keep=keep)
    output = TiledOutput(source.filled(model.output), quantised=quantised, keep=keep)
    is_tied = model.output.weight is model.target_embedding.weight
    target = TiledEmbedding(output.table) if is_tied else make.embedding(model.target_embedding)
    is_shared = model.source_embedding is model.target_embedding
    replaced = {
        "output": output,
        "source_embedding": target if is_shared else make.embedding(model.source_embedding),
        "target_embedding": target,
    }
    whole = copy.copy(model)
    whole._modules = {
        name: replaced[name] if name in replaced else make.of(child)
        for name, child in model._modules.items()  # a shared embedding under both of its names
        if child is not None
    }
    return whole


class _Tiled:
    """Makes tiled modules of the modules of one source."""

    def __init__(self, source: WeightSource, *, quantised: bool, keep: Keep) -> None:
        self._source, self._quantised, self._keep = source, quantised, keep
        self._activation = source.structure.config.activation

    def embedding(self, embedding: Embedding) -> TiledEmbedding:
        """A table of its own."""
        return TiledEmbedding.of(self._source.filled(embedding), quantised=self._quantised, keep=self._keep)

    def of(self, module: nn.Module) -> nn.Module:
        """The module with everything in it."""
        if isinstance(module, FeedForward):
            filled = self._source.filled(module)
            return TiledFeedForward(filled, self._activation, quantised=self._quantised, keep=self._keep)
        if isinstance(module, Linear):
            return TiledLinear(self._source.filled(module), quantised=self._quantised, keep=self._keep)
        if isinstance(module, RelativeBias):
            return DistanceBias(self._source.filled(module))
        if not module._modules:
            return self._source.filled(module)
        whole = copy.copy(module)
        whole._modules = {name: None if child is None else self.of(child) for name, child in module._modules.items()}
        return whole


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
            "scored_tokens": ("rows", "scored_tokens"),
            **({"shortlists": ("groups",)} if config.shortlists else {}),
        },
        outputs={"best_tokens": best, "best_log_probs": best, "best_logits": best},
    )


GRAPHS: dict[Role, type[EncoderGraph | DecoderGraph | ForcedGraph]] = {
    "encoder": EncoderGraph,
    "decoder": DecoderGraph,
    "forced": ForcedGraph,
}
SIGNATURES: dict[Role, Callable[[TransformerConfig], Signature]] = {
    "encoder": _encoder_signature,
    "decoder": _decoder_signature,
    "forced": forced_signature,
}
