"""Products and embeddings in our own operators: weights as the kernels read them, in float32 or int8.

In int8 the rows that are multiplied become integers one by one as they come. A row's answer does not depend on its
neighbours in the batch, which it does where a whole tensor has one scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dragoman.export.lowering.fused import DOMAIN
from dragoman.export.quantise import EIGHT_BITS, SEVEN_BITS, quantise_rows, weight_of
from dragoman.export.rewriting import array_of, bias_add, constant, drop_unused, replace

__all__ = ["in_float_tiles", "in_tiles", "put_in_tiles", "quantise_in_tiles"]

Weight = TypeVar("Weight", np.float32, np.int8)

TILE, QUAD, EIGHT = 16, 4, 8
SILU = 1
TIED = "output.weight"
"""The one table that is multiplied and, in many models, looked up: in the other graph if not in this one."""


def in_float_tiles(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(outputs, inputs) -> (tiles, 16 · inputs): for every input, its weights for each output of a tile in turn."""
    inputs = values.shape[1]
    return _padded(values).reshape(-1, TILE, inputs).transpose(0, 2, 1).reshape(-1, TILE * inputs)


def in_tiles(values: NDArray[np.int8]) -> NDArray[np.int8]:
    """(outputs, inputs) -> (tiles, 16 · inputs): for every four inputs, the four weights of each output in turn.

    Columns of zeros make the number of inputs a multiple of eight.
    """
    values = np.pad(values, ((0, 0), (0, -values.shape[1] % EIGHT)))
    inputs = values.shape[1]
    return _padded(values).reshape(-1, TILE, inputs // QUAD, QUAD).transpose(0, 2, 1, 3).reshape(-1, TILE * inputs)


def put_in_tiles(graph: ir.Graph) -> None:
    """Every linear layer and the output projection, and the embeddings that are tied to it, in float32."""
    _rewrite(graph, _float_linear, _float_embedding)


def quantise_in_tiles(graph: ir.Graph) -> None:
    """Every linear layer, the output projection and the embeddings, in int8."""
    _rewrite(graph, _linear, _embedding)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A product, the bias added to it and the activation that follows: `nodes` in their order."""

    nodes: tuple[ir.Node, ...]
    weight: ir.Value
    rows: NDArray[np.float32]  # (outputs, inputs)
    bias: ir.Value | None
    activation: int

    def become(self, graph: ir.Graph, operator: str, weights: list[ir.Value], attributes: list[ir.Attr]) -> None:
        inputs = [self.nodes[0].inputs[0], *weights, *([] if self.bias is None else [self.bias])]
        attributes = [*attributes, ir.AttrInt64("activation", self.activation)]
        replace(graph, self.nodes, ir.Node(DOMAIN, operator, inputs, attributes, name=f"{self.weight.name}.product"))


def _rewrite(
    graph: ir.Graph,
    linear: Callable[[ir.Graph, _Layer], None],
    embedding: Callable[[ir.Graph, ir.Node, ir.Value], None],
) -> None:
    for node in list(graph):
        weight = weight_of(node)
        if weight is None:
            continue
        if node.op_type == "Gather":
            embedding(graph, node, weight)
        else:
            linear(graph, _layer(node, weight))
    drop_unused(graph)


def _layer(node: ir.Node, weight: ir.Value) -> _Layer:
    nodes, bias = [node], node.inputs[2] if len(node.inputs) > 2 else None
    if (add := bias_add(node)) is not None:
        last, bias = add
        nodes.append(last)
    consumers = list(nodes[-1].outputs[0].consumers())
    is_activated = len(consumers) == 1 and consumers[0].op_type == "Silu"
    if is_activated:
        nodes.append(consumers[0])
    rows = array_of(weight).T if node.op_type == "MatMul" else array_of(weight)
    return _Layer(tuple(nodes), weight, rows, bias, SILU if is_activated else 0)


def _float_linear(graph: ir.Graph, layer: _Layer) -> None:
    tiles = constant(graph, f"{layer.weight.name}.tiles", in_float_tiles(layer.rows))
    layer.become(graph, "FloatLinear", [tiles], [ir.AttrInt64("columns", len(layer.rows))])


def _float_embedding(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    """Gather -> FloatEmbed of the table in tiles, which is read for the projection anyway; other tables stay as they are."""
    if weight.name != TIED:
        return
    rows = array_of(weight)
    tiles = constant(graph, f"{weight.name}.tiles", in_float_tiles(rows))
    attributes = [ir.AttrInt64("vocabulary", len(rows))]
    replace(
        graph, (node,), ir.Node(DOMAIN, "FloatEmbed", [tiles, node.inputs[1]], attributes, name=f"{weight.name}.embedded")
    )


def _linear(graph: ir.Graph, layer: _Layer) -> None:
    layer.become(graph, "Linear", list(_quantised(graph, layer.weight, layer.rows, SEVEN_BITS)), [])


def _embedding(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    """Gather -> Embed. What is multiplied, too, has seven bits there as here."""
    largest = SEVEN_BITS if weight.name == TIED else EIGHT_BITS
    tiles, scale, _ = _quantised(graph, weight, array_of(weight), largest)
    width = [ir.AttrInt64("width", array_of(weight).shape[1])]
    inputs = [tiles, scale, node.inputs[1]]
    replace(graph, (node,), ir.Node(DOMAIN, "Embed", inputs, width, name=f"{weight.name}.embedded"))


def _quantised(
    graph: ir.Graph, weight: ir.Value, rows: NDArray[np.float32], largest: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Tiles, scale and offset (what inputs of one give) of a weight that several nodes may share, quantised once."""
    names = [f"{weight.name}.{part}" for part in ("tiles", "scale", "offset")]
    if names[0] not in graph.initializers:
        quantised = quantise_rows(np.ascontiguousarray(rows), largest)
        offset = quantised.values.sum(axis=1, dtype=np.int64).astype(np.float32) * quantised.scale
        for name, array in zip(names, (in_tiles(quantised.values), quantised.scale, offset), strict=True):
            constant(graph, name, array)
    tiles, scale, offset_value = (graph.initializers[name] for name in names)
    return tiles, scale, offset_value


def _padded(values: NDArray[Weight]) -> NDArray[Weight]:
    """With rows of zeros up to a whole number of tiles."""
    outputs, inputs = values.shape
    padded = np.zeros((-(-outputs // TILE) * TILE, inputs), values.dtype)
    padded[:outputs] = values
    return padded
