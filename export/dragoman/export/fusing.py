"""What torch's exporter can't say in our operators is put into them afterwards."""

from __future__ import annotations

import onnx_ir as ir

from dragoman.errors import ExportError
from dragoman.export.lowering.fused import DOMAIN
from dragoman.export.rewriting import replace

__all__ = ["fuse_activations", "fuse_best_tokens", "take_bias_out"]


def take_bias_out(graph: ir.Graph) -> None:
    """The output projection's bias goes to BestTokens, which reads the logits anyway: elsewhere it would be another pass."""
    best, product = _projection(graph, ("Gemm",))
    if len(product.inputs) > 2:
        best.resize_inputs(3)
        best.replace_input_with(2, product.inputs[2])
        product.resize_inputs(2)


def fuse_best_tokens(graph: ir.Graph) -> None:
    """The projection in tiles and BestTokens -> one operator, which keeps the logits of a few rows at a time."""
    best, product = _projection(graph, ("Linear", "FloatLinear"))
    inputs = [*product.inputs, *best.inputs[1:]]
    if product.op_type == "Linear":
        node = ir.Node(DOMAIN, "BestOutputs", inputs, num_outputs=3, name=best.name)
    else:
        vocabulary = [ir.AttrInt64("vocabulary", product.attributes.get_int("columns"))]
        node = ir.Node(DOMAIN, "FloatBestOutputs", inputs, vocabulary, num_outputs=3, name=best.name)
    replace(graph, (product, best), node)


def _projection(graph: ir.Graph, kinds: tuple[str, ...]) -> tuple[ir.Node, ir.Node]:
    """BestTokens, and the product whose results it looks at."""
    best = next((node for node in graph if node.op_type == "BestTokens"), None)
    if best is None:
        raise ExportError("the graph chooses no best tokens")
    product = best.inputs[0].producer() if best.inputs[0] is not None else None
    if product is None or product.op_type not in kinds:
        raise ExportError("the best tokens are not those of a projection")
    return best, product


def fuse_activations(graph: ir.Graph) -> None:
    """x · sigmoid(x) -> Silu."""
    for node in list(graph):
        if node.op_type != "Sigmoid":
            continue
        consumers = list(node.outputs[0].consumers())
        if len(consumers) == 1 and consumers[0].op_type == "Mul" and node.inputs[0] in consumers[0].inputs:
            replace(graph, (node, consumers[0]), ir.Node(DOMAIN, "Silu", [node.inputs[0]], name=f"{node.name}.silu"))
