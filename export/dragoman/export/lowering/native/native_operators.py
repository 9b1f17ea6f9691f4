"""The Transformer's operators as custom operators: tokens without padding, caches whose slots are named by the inputs."""

from __future__ import annotations

from typing import NamedTuple, cast

from torch import Tensor

from dragoman.export.lowering.native import operators
from dragoman.export.lowering.native.modules import DistanceBias, TiledEmbedding
from dragoman.export.transformer import AttentionShape
from dragoman.export.transformer.linear import Map, RMSNorm
from dragoman.export.transformer.operators import Norm
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = ["LayerCache", "NativeOperators", "Sources"]


class Sources(NamedTuple):
    """The start and length of each source among all tokens, (sources,) each."""

    starts: Tensor
    lengths: Tensor


class LayerCache(NamedTuple):
    """One layer of a cache (layers, slots, 2 · width), and which of its KV slots a row or a group has.

    `slots` is (rows, room) in the self-attention cache; in the cross-attention cache the first of each group, (groups,).
    """

    cache: Tensor
    slots: Tensor
    layer: int


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


def _parts(norm: Norm) -> tuple[Tensor, Tensor | None]:
    return norm.weight, None if isinstance(norm, RMSNorm) else norm.bias
