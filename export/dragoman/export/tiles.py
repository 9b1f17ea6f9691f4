"""int8 for our own operators: weights as the kernels read them, activations quantised row by row as they come.

A row's answer does not depend on its neighbours in the batch, which it does where a whole tensor has one scale.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dragoman.export.lowering.fused import DOMAIN
from dragoman.export.quantise import EIGHT_BITS, SEVEN_BITS, quantise_rows, weight_of
from dragoman.export.rewriting import array_of, bias_add, constant, drop_unused, replace

__all__ = ["in_tiles", "quantise_in_tiles"]

TILE, QUAD = 16, 4
SILU = 1


def in_tiles(values: NDArray[np.int8]) -> NDArray[np.int8]:
    """(outputs, inputs) -> (tiles, 16 · inputs): for every four inputs, the four weights of each output in turn."""
    outputs, inputs = values.shape
    padded = np.zeros((-(-outputs // TILE) * TILE, inputs), np.int8)
    padded[:outputs] = values
    return padded.reshape(-1, TILE, inputs // QUAD, QUAD).transpose(0, 2, 1, 3).reshape(-1, TILE * inputs)


def quantise_in_tiles(graph: ir.Graph) -> None:
    """Every linear layer, the output projection and the embeddings of `graph`."""
    for node in list(graph):
        weight = weight_of(node)
        if weight is None:
            continue
        if node.op_type == "MatMul":
            _linear(graph, node, weight, array_of(weight).T)
        elif node.op_type == "Gemm":
            _linear(graph, node, weight, array_of(weight))
        elif node.op_type == "Gather":
            _embedding(graph, node, weight)
    drop_unused(graph)


def _linear(graph: ir.Graph, node: ir.Node, weight: ir.Value, rows: NDArray[np.float32]) -> None:
    """A product, the bias added to it and the activation that follows -> Linear. `rows` (outputs, inputs)."""
    tiles, scale, offset = _stored(graph, weight, rows, SEVEN_BITS)
    old, bias = [node], node.inputs[2] if len(node.inputs) > 2 else None
    if (add := bias_add(node)) is not None:
        last, bias = add
        old.append(last)
    consumers = list(old[-1].outputs[0].consumers())
    activated = len(consumers) == 1 and consumers[0].op_type == "Silu"
    if activated:
        old.append(consumers[0])
    inputs = [node.inputs[0], tiles, scale, offset, *([] if bias is None else [bias])]
    attributes = [ir.AttrInt64("activation", SILU if activated else 0)]
    replace(graph, tuple(old), ir.Node(DOMAIN, "Linear", inputs, attributes, name=f"{weight.name}.product"))


def _embedding(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    """Gather -> Embed. What is multiplied, too, in the other graph if not in this one, has seven bits there as here."""
    largest = SEVEN_BITS if weight.name == "output.weight" else EIGHT_BITS
    tiles, scale, _ = _stored(graph, weight, array_of(weight), largest)
    replace(graph, (node,), ir.Node(DOMAIN, "Embed", [tiles, scale, node.inputs[1]], name=f"{weight.name}.embedded"))


def _stored(
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
