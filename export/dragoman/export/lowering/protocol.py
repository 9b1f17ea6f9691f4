"""What the Transformer leaves open: how attention, normalisation and the choice of the best tokens become operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from dragoman.bundle.manifest import Lowering as LoweringName

if TYPE_CHECKING:
    from dragoman.export.transformer.config import AttentionShape
    from dragoman.export.transformer.linear import LayerNorm, RMSNorm

__all__ = ["Attributes", "Best", "Cells", "KeyValue", "Lowering", "Past", "Sources"]


class KeyValue(NamedTuple):
    """Keys and values, each (rows, heads, length, head_dim)."""

    key: Tensor
    value: Tensor


class Sources(NamedTuple):
    """Where each source lies among the tokens of all, (sources,) each."""

    starts: Tensor
    lengths: Tensor


class Cells(NamedTuple):
    """One layer of a cache (layers, cells, 2 · width), and which of its cells a row or a group has.

    `of` is (rows, room) in the self-attention cache; in the cross-attention cache the first of each group, (groups,).
    """

    cache: Tensor
    of: Tensor
    layer: int


Attributes = dict[str, int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]]
"""All that torch's symbolic operators take."""

Past = Any
"""A KeyValue or Cells: what a lowering keeps of a layer, and only it looks inside."""

Extents = Any
"""Lengths (batch,) of padded sources, or Sources: the same."""


class Best(NamedTuple):
    """The best next tokens of each row, each (rows, k), best first."""

    tokens: Tensor
    log_probs: Tensor
    logits: Tensor


class Lowering(Protocol):
    """One way of writing the same mathematics as ONNX operators."""

    @property
    def name(self) -> LoweringName:
        """As the manifest spells it."""

    @property
    def gathers_parents(self) -> bool:
        """The decoder graph reorders its past by `parents`; otherwise the caller owns and reorders one cache buffer."""

    @property
    def max_candidates(self) -> int | None:
        """How many best tokens a step gives; None when its `candidates` input says so."""

    def encoder_attention(self, packed: Tensor, lengths: Extents, shape: AttentionShape, bias: Tensor | None) -> Tensor:
        """Self-attention over whole sources.

        packed (batch, source, 3·width) holds queries, keys and values side by side; lengths (batch,) int32, or Sources;
        bias (1, heads, source, source) or None; the result is (batch, source, width).
        """

    def step_attention(
        self, packed: Tensor, past: Past, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, Past]:
        """Self-attention of one new token a row over its past, which the token joins at `positions`.

        packed (groups, width, 3·inner); past (rows, heads, cache, head_dim); positions (groups, width) int32;
        bias (rows, heads, 1, cache) or None; the result is (groups, width, inner) and the present.
        """

    def cross_attention(self, query: Tensor, memory: Past, lengths: Tensor, shape: AttentionShape) -> Tensor:
        """Attention of a group's rows over their common source.

        query (groups, width, inner); memory (groups, heads, source, head_dim); lengths (groups,) int32.
        """

    def add_norm(self, x: Tensor, update: Tensor, norm: LayerNorm | RMSNorm) -> Tensor:
        """norm(x + update), each (a, b, d_model)."""

    def best(self, logits: Tensor, candidates: Tensor | None) -> Best:
        """The best of logits (rows, vocabulary) with log-softmax over the whole vocabulary."""
