"""Layers with weights in tiles. They exist only in the exported graph: in eager torch they compute nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dragoman.export.lowering.native import operators
from dragoman.export.lowering.native.operators import TiledWeight
from dragoman.export.lowering.native.quantised_rows import quantise_rows
from dragoman.export.lowering.native.shortlists import ListedRows
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from dragoman.export.transformer.config import Activation
from dragoman.export.transformer.linear import FeedForward, Linear, Map
from dragoman.export.transformer.model import Embedding, ListedOutputProjection, OutputProjection, ShortOutputProjection
from dragoman.export.transformer.positions import RelativeBias, relative_bucket
from dragoman.export.weights import Keep

__all__ = ["DistanceBias", "TiledEmbedding", "TiledFeedForward", "TiledLinear", "TiledOutput", "Tiles"]

ACTIVATIONS: dict[Activation, operators.Activation] = {
    "relu": operators.Activation.RELU,
    "gelu": operators.Activation.GELU,
    "gelu_tanh": operators.Activation.GELU_TANH,
    "gelu_sigmoid": operators.Activation.GELU_SIGMOID,
    "silu": operators.Activation.SILU,
}


PART = 4096
"""Rows of a matrix that are converted at a time: a large embedding is never in memory twice."""


class Tiles(nn.Module):
    """A matrix (outputs, inputs) in tiles of float32 or int8; with an `order`, its outputs are these of the rows."""

    def __init__(
        self,
        rows: Tensor,
        *,
        quantised: bool,
        keep: Keep,
        order: NDArray[np.int32] | None = None,
    ) -> None:
        super().__init__()
        array = rows.detach().numpy()
        self.outputs, self.inputs = len(array if order is None else order), array.shape[1]
        some = (slice(start, start + PART) for start in range(0, self.outputs, PART))
        parts = (np.ascontiguousarray(array[one if order is None else order[one]]) for one in some)
        self.scale, self.offset = None, None
        if not quantised:
            self.register_buffer("tiles", keep(in_float_tiles(part) for part in parts), persistent=False)
            return
        scales: list[np.ndarray] = []  # type: ignore[type-arg]
        offsets: list[np.ndarray] = []  # type: ignore[type-arg]

        def levels() -> Iterator[NDArray[np.int8]]:
            for part in parts:
                found = quantise_rows(part)
                scales.append(found.scale)
                offsets.append(found.values.sum(axis=1, dtype=np.int64).astype(np.float32) * found.scale)
                yield in_tiles(found.values)

        self.register_buffer("tiles", keep(levels()), persistent=False)
        for name, found in (("scale", scales), ("offset", offsets)):
            delattr(self, name)
            self.register_buffer(name, torch.from_numpy(np.concatenate(found)), persistent=False)

    scale: Tensor | None
    offset: Tensor | None
    tiles: Tensor

    def weight(self) -> TiledWeight:
        """As the operators take it."""
        return TiledWeight(self.tiles, self.outputs, self.inputs, self.scale, self.offset)


class TiledLinear(Map):
    """act(xW + b)."""

    def __init__(self, linear: Linear, *, quantised: bool, keep: Keep, activation: Activation | None = None) -> None:
        super().__init__()
        self.weight = Tiles(linear.weight.t(), quantised=quantised, keep=keep)
        self.bias = linear.bias
        self._activation = operators.Activation.NONE if activation is None else ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return operators.linear(x, self.weight.weight(), self.bias, self._activation)


class TiledFeedForward(Map):
    """The feed-forward network in two operators, with or without a gate."""

    def __init__(self, whole: FeedForward, activation: Activation, *, quantised: bool, keep: Keep) -> None:
        super().__init__()
        self._activation, gate = ACTIVATIONS[activation], whole.gate
        self.gate = None if gate is None else TiledLinear(gate, quantised=quantised, keep=keep)
        self.inner = TiledLinear(whole.inner, quantised=quantised, keep=keep, activation=activation)
        self.outer = TiledLinear(whole.outer, quantised=quantised, keep=keep)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.outer(self.inner(x))
        gate, inner = self.gate, self.inner
        return self.outer(
            operators.gated_linear(x, gate.weight.weight(), inner.weight.weight(), self._activation, gate.bias, inner.bias)
        )


class TiledEmbedding(Map):
    """A table in tiles: the output projection's where they are tied."""

    def __init__(self, table: Tiles) -> None:
        super().__init__()
        self.table = table

    @classmethod
    def of(cls, embedding: Embedding, *, quantised: bool, keep: Keep) -> TiledEmbedding:
        """A table that is only looked up."""
        return cls(Tiles(embedding.weight, quantised=quantised, keep=keep))

    @property
    def dtype(self) -> torch.dtype:
        """Of what the operator gives."""
        return torch.float32

    def forward(self, tokens: Tensor) -> Tensor:
        return operators.embed(self.table.weight(), tokens)


class TiledOutput(nn.Module):
    """The output projection and the choice of the best tokens in one operator: all logits are never in memory."""

    def __init__(self, output: OutputProjection, *, quantised: bool, keep: Keep) -> None:
        super().__init__()
        bias = torch.as_tensor(output.bias).detach()
        listed, order = None, None
        if isinstance(output, ShortOutputProjection):
            listed = ListedRows.of_one(torch.as_tensor(output.shortlist).tolist())
        elif isinstance(output, ListedOutputProjection):
            listed = ListedRows.of_languages(len(output.weight), output.shortlists)
            order, bias = listed.tokens, bias[torch.from_numpy(listed.tokens)]
        self.table = Tiles(output.weight, quantised=quantised, keep=keep, order=order)
        self.register_buffer("bias", bias if bool(bias.any()) else None, persistent=False)
        self.register_buffer("listed_tokens", None if listed is None else torch.from_numpy(listed.tokens), persistent=False)
        self.register_buffer("list_ranges", None if listed is None else torch.from_numpy(listed.ranges), persistent=False)
        self._scale = output.scale

    bias: Tensor | None
    listed_tokens: Tensor | None  # (rows of the table,)
    list_ranges: Tensor | None  # (lists, 4)

    def best(
        self, hidden: Tensor, candidates: Tensor, scored_tokens: Tensor, shortlists: Tensor | None = None
    ) -> list[Tensor]:
        """The best tokens of each row, then its `scored_tokens`: they, their log-probabilities and their logits.

        `shortlists` int32 (groups,): what each group of rows chooses from, where there are several lists.
        """
        listed = None
        if self.listed_tokens is not None and self.list_ranges is not None:
            listed = operators.Shortlists(self.listed_tokens, self.list_ranges, shortlists)
        return list(
            operators.best_tokens(hidden, self.table.weight(), candidates, self.bias, self._scale, scored_tokens, listed)
        )


class DistanceBias(nn.Module):
    """Relative positions as the operators take them: a row for each distance up to where the buckets end."""

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        reach = bias.max_distance
        distance = torch.arange(-reach, (reach if bias.both_sides else 0) + 1)
        bucket = relative_bucket(distance, bias.buckets, bias.max_distance, bias.both_sides)
        self.register_buffer("table", bias.weight[bucket].contiguous(), persistent=False)

    table: Tensor
