"""Layers with weights in tiles. They exist only in the exported graph: in eager torch they compute nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dragoman.export.lowering.native import operators
from dragoman.export.lowering.native.operators import TiledWeight
from dragoman.export.lowering.native.quantised_rows import EIGHT_BITS, SEVEN_BITS, quantise_rows
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from dragoman.export.transformer.config import Activation
from dragoman.export.transformer.linear import FeedForward, Linear, Map
from dragoman.export.transformer.model import Embedding, OutputProjection, ShortOutputProjection
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
    """A matrix (outputs, inputs) in tiles of float32 or int8."""

    def __init__(self, rows: Tensor, *, quantised: bool, keep: Keep, largest: int = SEVEN_BITS) -> None:
        super().__init__()
        self.outputs, self.inputs = rows.shape
        array = rows.detach().numpy()
        parts = (np.ascontiguousarray(array[start : start + PART]) for start in range(0, self.outputs, PART))
        self.scale, self.offset = None, None
        if not quantised:
            self.register_buffer("tiles", keep(in_float_tiles(part) for part in parts), persistent=False)
            return
        scales: list[np.ndarray] = []  # type: ignore[type-arg]
        offsets: list[np.ndarray] = []  # type: ignore[type-arg]

        def levels() -> Iterator[NDArray[np.int8]]:
            for part in parts:
                found = quantise_rows(part, largest)
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
        """A table that is only looked up, and may use all eight bits."""
        return cls(Tiles(embedding.weight, quantised=quantised, keep=keep, largest=EIGHT_BITS))

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
        self.table = Tiles(output.weight, quantised=quantised, keep=keep)
        bias = torch.as_tensor(output.bias).detach()
        self.register_buffer("bias", bias if bool(bias.any()) else None, persistent=False)
        short = isinstance(output, ShortOutputProjection)
        self.register_buffer("shortlist", torch.as_tensor(output.shortlist) if short else None, persistent=False)
        self.register_buffer(
            "places", _places(output) if isinstance(output, ShortOutputProjection) else None, persistent=False
        )
        self._scale = output.scale

    bias: Tensor | None
    shortlist: Tensor | None
    places: Tensor | None

    def best(self, hidden: Tensor, candidates: Tensor, scored_tokens: Tensor) -> list[Tensor]:
        """The best tokens of each row, then its `scored_tokens`: they, their log-probabilities and their logits."""
        if self.places is not None:
            in_shortlist = self.places[scored_tokens.clamp(0, len(self.places) - 1)]
            scored_tokens = torch.where(scored_tokens < 0, scored_tokens, in_shortlist)
        places, log_probs, logits = operators.best_tokens(
            hidden, self.table.weight(), candidates, self.bias, self._scale, scored_tokens
        )
        return [places if self.shortlist is None else self.shortlist[places], log_probs, logits]


def _places(output: ShortOutputProjection) -> Tensor:
    """Where each token stands in the shortlist, -1 where it does not; the last is for all tokens above those that do."""
    shortlist = torch.as_tensor(output.shortlist)
    places = torch.full((int(shortlist.max()) + 2,), -1, dtype=torch.int64)
    places[shortlist] = torch.arange(len(shortlist))
    return places


class DistanceBias(nn.Module):
    """Relative positions as the operators take them: a row for each distance up to where the buckets end."""

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        reach = bias.max_distance
        distance = torch.arange(-reach, (reach if bias.both_sides else 0) + 1)
        bucket = relative_bucket(distance, bias.buckets, bias.max_distance, bias.both_sides)
        self.register_buffer("table", bias.weight[bucket].contiguous(), persistent=False)

    table: Tensor
