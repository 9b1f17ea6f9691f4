"""int8 for the CPU: ONNX Runtime's dynamic quantisation, written into the graph by rewriting its linear layers.

How a linear layer looks in a traced graph, for whoever rewrites it: a MatMul whose second input is an initializer
(inputs, outputs) named after the module, `decoder.layers.1.feed_forward.inner.weight`, followed by an Add of the
initializer `….bias`. The output projection is the one Gemm, transB=1, on `output.weight` (vocabulary, d_model). An
embedding is a Gather on `source_embedding.weight`, `target_embedding.weight`, or on `output.weight` where they are tied.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dragoman.errors import ExportError
from dragoman.export.lowering.cpu.rewriting import array_of, bias_add, constant, drop_unused, replace
from dragoman.export.lowering.rows import EIGHT_BITS, SEVEN_BITS, quantise_rows

__all__ = ["quantise_dynamically"]

MICROSOFT = "com.microsoft"

EMBEDDINGS = {"source_embedding.weight", "target_embedding.weight", "output.weight"}
"""What is looked up by token; tables of positions are small and stay as they are."""


def quantise_dynamically(graph: ir.Graph) -> None:
    """Every linear layer, the output projection and the embeddings of `graph` to int8; activations quantise as they come."""
    for node in list(graph):
        weight = weight_of(node)
        if weight is None:
            continue
        if node.op_type == "MatMul":
            _quantise_linear(graph, node, weight)
        elif node.op_type == "Gemm":
            _quantise_projection(graph, node, weight)
        elif node.op_type == "Gather":
            _quantise_embedding(graph, node, weight)
    drop_unused(graph)
    graph.opset_imports[MICROSOFT] = 1


def weight_of(node: ir.Node) -> ir.Value | None:
    """The weight that `node` multiplies or looks up, if it is one to quantise."""
    index = {"MatMul": 1, "Gemm": 1, "Gather": 0}.get(node.op_type)
    value = None if index is None else node.inputs[index]
    if value is None or value.const_value is None or len(value.const_value.shape) != 2:
        return None
    return value if node.op_type != "Gather" or value.name in EMBEDDINGS else None


def _quantise_linear(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    """MatMul (+ Add) -> DynamicQuantizeMatMul."""
    quantised = quantise_rows(array_of(weight).T)
    values = constant(graph, f"{weight.name}.int8", np.ascontiguousarray(quantised.values.T))
    scale = constant(graph, f"{weight.name}.scale", quantised.scale)
    last, bias = node, None
    if (add := bias_add(node)) is not None:
        last, bias = add
    fused = ir.Node(
        MICROSOFT, "DynamicQuantizeMatMul", [node.inputs[0], values, scale, None, bias], name=f"{weight.name}.product"
    )
    replace(graph, (node, last), fused)


def _quantise_projection(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    """Gemm -> DynamicQuantizeLinear + QGemm, which reads rows of (vocabulary, d_model) as the embedding does."""
    if node.attributes.get_int("transB", 0) != 1:
        raise ExportError(f"the output projection {weight.name} must be (vocabulary, d_model)")
    values, scale = _rows(graph, weight, SEVEN_BITS)
    zero = constant(graph, f"{weight.name}.zero", np.zeros(scale.const_value.shape.numpy(), np.int8))
    dynamic = ir.Node("", "DynamicQuantizeLinear", [node.inputs[0]], num_outputs=3, name=f"{weight.name}.dynamic")
    product = ir.Node(
        MICROSOFT,
        "QGemm",
        [*dynamic.outputs, values, scale, zero],
        [ir.AttrInt64("transB", 1)],
        name=f"{weight.name}.product",
    )
    graph.insert_before(node, dynamic)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        replace(graph, (node,), product)
        return
    graph.insert_before(node, product)  # its own bias is an integer in units that only the run knows
    replace(graph, (node,), ir.Node("", "Add", [product.outputs[0], bias], name=f"{weight.name}.sum"))


def _quantise_embedding(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> None:
    """Gather -> Gather of int8 rows, times the Gather of their scales."""
    multiplied = weight.name == "output.weight"  # in the other graph, if not in this one
    values, scale = _rows(graph, weight, SEVEN_BITS if multiplied else EIGHT_BITS)
    column = constant(graph, f"{weight.name}.column", scale.const_value.numpy()[:, None])
    tokens, axis = node.inputs[1], [ir.AttrInt64("axis", 0)]
    rows = ir.Node("", "Gather", [values, tokens], axis, name=f"{weight.name}.rows")
    scales = ir.Node("", "Gather", [column, tokens], axis, name=f"{weight.name}.scales")
    floats = ir.Node("", "Cast", rows.outputs, [ir.AttrInt64("to", ir.DataType.FLOAT.value)], name=f"{weight.name}.floats")
    for new in (rows, scales, floats):
        graph.insert_before(node, new)
    replace(graph, (node,), ir.Node("", "Mul", [floats.outputs[0], scales.outputs[0]], name=f"{weight.name}.embedded"))


def _rows(graph: ir.Graph, weight: ir.Value, largest: int) -> tuple[ir.Value, ir.Value]:
    """Values and scale of a weight that several nodes share, quantised once."""
    name = f"{weight.name}.int8"
    if name not in graph.initializers:
        quantised = quantise_rows(array_of(weight), largest)
        constant(graph, name, quantised.values)
        constant(graph, f"{weight.name}.scale", quantised.scale)
    return graph.initializers[name], graph.initializers[f"{weight.name}.scale"]
