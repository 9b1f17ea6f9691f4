"""What the Transformer leaves open: how attention, normalisation and embedding become operators.

`TorchOperators` is the reference, in plain torch; a lowering that wants other operators in its graphs brings its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from dragoman.export.transformer.config import AttentionShape
from dragoman.export.transformer.linear import LayerNorm, Map, RMSNorm
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = ["Extents", "KeyValue", "Norm", "Operators", "Past"]


class KeyValue(NamedTuple):
    """Keys and values, each (rows, heads, length, head_dim)."""

    key: Tensor
    value: Tensor


Norm = LayerNorm | RMSNorm

Past = Any
"""What a set of operators keeps of a layer (a KeyValue in torch); only they look inside."""

Extents = Any
"""Lengths (batch,) of padded sources in torch; other operators may know sources differently."""


class Operators(Protocol):
    """One way of computing the same mathematics."""

    def embed(self, embedding: Map, tokens: Tensor, scale: float, table: PositionTable | None, positions: Tensor) -> Tensor:
        """scale · E[token] + PE[position]; tokens (a, b) -> (a, b, d_model), positions broadcast."""

    def source_bias(self, bias: RelativeBias, positions: Tensor) -> Tensor:
        """What relative positions add to the scores of an encoder's attention; positions (source,)."""

    def step_bias(self, bias: RelativeBias, past: Past, positions: Tensor) -> Tensor:
        """The same for one new token in each row; positions (groups, width)."""

    def encoder_attention(self, packed: Tensor, lengths: Extents, shape: AttentionShape, bias: Tensor | None) -> Tensor:
        """Self-attention over whole sources.

        packed (batch, source, 3·width) holds queries, keys and values side by side; the result is (batch, source, width).
        """

    def step_attention(
        self, packed: Tensor, past: Past, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, Past]:
        """Self-attention of one new token in each row over its past, which the token joins at `positions`.

        packed (groups, width, 3·inner); positions (groups, width) int32; the result is (groups, width, inner), and the
        present.
        """

    def cross_attention(self, query: Tensor, memory: Past, lengths: Tensor, shape: AttentionShape) -> Tensor:
        """Attention of a group's rows over their common source: query (groups, width, inner); lengths (groups,) int32."""

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        """norm(x)."""

    def add_norm(self, x: Tensor, update: Tensor, norm: Norm) -> Tensor:
        """norm(x + update)."""

    def add_then_norm(self, x: Tensor, update: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """x + update, and its norm."""
