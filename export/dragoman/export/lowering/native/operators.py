"""The custom operators of `native/ops`, one function each, for graphs that are traced.

They exist only in the exported graph: in eager torch they compute nothing. docs/operators.md has their mathematics.
Weights are tiled (`dragoman.export.lowering.native.tiles`), in float32 or in int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dragoman.export.lowering.protocol import Attributes
    from dragoman.export.transformer.config import AttentionShape

__all__ = [
    "DOMAIN",
    "Activation",
    "BestTokens",
    "Shortlists",
    "TiledWeight",
    "add_norm",
    "add_then_norm",
    "aligned_attention",
    "best_tokens",
    "cross_attention",
    "embed",
    "gated_linear",
    "linear",
    "norm",
    "source_attention",
    "step_attention",
    "target_attention",
]

DOMAIN = "dragoman"

Shape = Sequence[int | torch.SymInt]


class Activation(IntEnum):
    """The activation after a linear layer: the attribute `activation`."""

    NONE = 0
    SILU = 1
    RELU = 2
    GELU = 3  # x · Φ(x)
    GELU_TANH = 4  # gelu_new, gelu_pytorch_tanh
    GELU_SIGMOID = 5  # x · sigmoid(1.702 x), quick_gelu


@dataclass(frozen=True, slots=True)
class TiledWeight:
    """A matrix (outputs, inputs) in the layout of the operators; int8 has a scale and an offset for every output."""

    tiles: Tensor
    outputs: int
    inputs: int
    scale: Tensor | None = None
    offset: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tiles,) if self.scale is None or self.offset is None else (self.tiles, self.scale, self.offset)

    @property
    def is_float(self) -> bool:
        return self.scale is None


class BestTokens(NamedTuple):
    """Of each row, best first: (rows, candidates)."""

    tokens: Tensor
    log_probs: Tensor
    logits: Tensor


class Shortlists(NamedTuple):
    """The rows of the table that may be chosen: the lists, and the number of the list of each group of rows."""

    tokens: Tensor  # int32 (rows of the table,)
    ranges: Tensor  # int64 (lists, 4): begin and end of two stretches of the table
    of_groups: Tensor | None  # int32 (groups,); None: the first


def source_attention(
    packed: Tensor, starts: Tensor, lengths: Tensor, shape: AttentionShape, bias: Tensor | None = None
) -> Tensor:
    """packed (tokens, 3 · width), starts and lengths int32 (sources,) -> (tokens, width).

    bias (2 · reach + 1, heads): row r is added to scores where key − query = r − reach, the ends beyond them, too.
    """
    return _call("SourceAttention", (packed, starts, lengths, bias), _heads(shape), packed, (packed.shape[0], shape.width))


def step_attention(  # noqa: PLR0917 - the inputs of the operator
    packed: Tensor,
    cache: Tensor,
    slots: Tensor,
    positions: Tensor,
    layer: int,
    shape: AttentionShape,
    bias: Tensor | None = None,
) -> Tensor:
    """packed (rows, 3 · width), cache (layers, slots, 2 · width), slots int32 (rows, room), positions int32 (rows,).

    The new keys and values are written to the cache in place. bias (reach + 1, heads): row r is added where
    key − query = r − reach, row 0 beyond it, too.
    """
    inputs, attributes = (packed, cache, slots, positions, bias), {**_heads(shape), "layer": layer}
    return _call("StepAttention", inputs, attributes, packed, (packed.shape[0], shape.width))


def cross_attention(  # noqa: PLR0917 - the inputs of the operator
    query: Tensor, cache: Tensor, starts: Tensor, lengths: Tensor, layer: int, shape: AttentionShape
) -> Tensor:
    """query (rows, width), cache (layers, slots, 2 · width), starts and lengths int32 (groups,) -> (rows, width)."""
    inputs, attributes = (query, cache, starts, lengths), {**_heads(shape), "layer": layer}
    return _call("CrossAttention", inputs, attributes, query, (query.shape[0], shape.width))


def target_attention(  # noqa: PLR0917 - the inputs of the operator
    packed: Tensor, cache: Tensor, positions: Tensor, layer: int, shape: AttentionShape, bias: Tensor | None = None
) -> Tensor:
    """packed (tokens, 3 · width), cache (layers, slots, 2 · width), positions int32 (tokens,), one after the other.

    Keys and values are written to the slots of the positions, and each token sees those up to its own; bias as above.
    """
    inputs, attributes = (packed, cache, positions, bias), {**_heads(shape), "layer": layer}
    return _call("TargetAttention", inputs, attributes, packed, (packed.shape[0], shape.width))


def aligned_attention(
    query: Tensor, memory: Tensor, shape: AttentionShape, heads: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """query (tokens, width), memory (source, 2 · width) -> (tokens, width), and with the weights of the heads (heads,) the
    weighted sum of their attention (tokens, source)."""
    shapes: list[Shape] = [(query.shape[0], shape.width), (query.shape[0], memory.shape[0])]
    if heads is None:
        return _call("AlignedAttention", (query, memory), _heads(shape), query, shapes[0]), None
    dtypes = [query.dtype, torch.float32]
    seen, alignment = _call_many("AlignedAttention", (query, memory, heads), _heads(shape), dtypes, shapes)
    return seen, alignment


def norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float, *, rms: bool) -> Tensor:
    """LayerNorm, or RMSNorm, of the rows of x (rows, width)."""
    return _call("Norm", (x, gamma, beta), {"epsilon": epsilon, "rms": int(rms)}, x, x.shape)


def add_norm(x: Tensor, update: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float, *, rms: bool) -> Tensor:
    """norm(x + update), all (rows, width): after the layers (post-norm)."""
    return _call("AddNorm", (x, update, gamma, beta), {"epsilon": epsilon, "rms": int(rms)}, x, x.shape)


def add_then_norm(
    x: Tensor, update: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float, *, rms: bool
) -> tuple[Tensor, Tensor]:
    """The residual x + update, and its norm: before the layers (pre-norm)."""
    inputs: Sequence[Tensor | None] = (x, update, gamma, beta)
    attributes: Attributes = {"epsilon": epsilon, "rms": int(rms)}
    normed, summed = _call_many("AddNorm", inputs, attributes, [x.dtype, x.dtype], [x.shape, x.shape])
    return summed, normed


def linear(x: Tensor, weight: TiledWeight, bias: Tensor | None, activation: Activation = Activation.NONE) -> Tensor:
    """act(x Wᵀ + b): x (rows, inputs) -> (rows, outputs)."""
    attributes: Attributes = {"activation": int(activation)}
    if weight.is_float:
        attributes["columns"] = weight.outputs
    name = "FloatLinear" if weight.is_float else "Linear"
    return _call(name, (x, *weight.tensors, bias), attributes, x, (x.shape[0], weight.outputs))


def gated_linear(  # noqa: PLR0917 - the inputs of the operator
    x: Tensor,
    gate: TiledWeight,
    weight: TiledWeight,
    activation: Activation,
    gate_bias: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """act(x Gᵀ + g) ⊙ (x Wᵀ + b): x (rows, inputs) -> (rows, outputs); both biases or none."""
    attributes: Attributes = {"activation": int(activation)}
    if weight.is_float:
        attributes["columns"] = weight.outputs
    name = "FloatGatedLinear" if weight.is_float else "GatedLinear"
    inputs = (x, *gate.tensors, *weight.tensors, gate_bias, bias)
    return _call(name, inputs, attributes, x, (x.shape[0], weight.outputs))


def embed(  # noqa: PLR0917 - the inputs of the operator
    table: TiledWeight,
    tokens: Tensor,
    scale: float = 1.0,
    positions: Tensor | None = None,
    position_table: Tensor | None = None,
    offset: int = 0,
) -> Tensor:
    """scale · table[token] + position_table[position + offset]: tokens int64 (rows,), positions int32 (rows,)."""
    attributes: Attributes = {"scale": scale, "offset": offset}
    attributes |= {"vocabulary": table.outputs} if table.is_float else {"width": table.inputs}
    stored = (table.tiles,) if table.scale is None else (table.tiles, table.scale)
    inputs, shape = (*stored, tokens, positions, position_table), (tokens.shape[0], table.inputs)
    return _call_many("FloatEmbed" if table.is_float else "Embed", inputs, attributes, [torch.float32], [shape])[0]


def best_tokens(  # noqa: PLR0917 - the inputs of the operator
    x: Tensor,
    weight: TiledWeight,
    candidates: Tensor,
    bias: Tensor | None = None,
    scale: float = 1.0,
    scored_tokens: Tensor | None = None,
    shortlists: Shortlists | None = None,
) -> BestTokens:
    """The best of logits = scale · x Wᵀ + b: x (rows, inputs), candidates int64 (1,) -> (rows, candidates) each.

    Behind them come the `scored_tokens` int64 (rows, any number), -1 for none: (rows, candidates + any number) each.
    With `shortlists` these are tokens, whichever rows of the table hold them.
    """
    attributes: Attributes = {"scale": scale}
    if weight.is_float:
        attributes["vocabulary"] = weight.outputs
    shape = (x.shape[0], 2)  # the 2 stands for a number only the runtime knows
    found = _call_many(
        "FloatBestOutputs" if weight.is_float else "BestOutputs",
        (x, *weight.tensors, candidates, bias, scored_tokens, *(shortlists or ())),
        attributes,
        [torch.int64, torch.float32, torch.float32],
        [shape] * 3,
    )
    return BestTokens(*found)


def _heads(shape: AttentionShape) -> Attributes:
    return {"heads": shape.heads, "head_dim": shape.head_dim, "scale": shape.scale}


def _call(name: str, inputs: Sequence[Tensor | None], attributes: Attributes, like: Tensor, shape: Shape) -> Tensor:
    return _call_many(name, inputs, attributes, [like.dtype], [shape])[0]


def _call_many(
    name: str,
    inputs: Sequence[Tensor | None],
    attributes: Attributes,
    dtypes: Sequence[torch.dtype],
    shapes: Sequence[Shape],
) -> Sequence[Tensor]:
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{name}", inputs, attributes, dtypes=dtypes, shapes=shapes, version=1
    )
