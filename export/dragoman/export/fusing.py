"""What torch's exporter can't say in our operators is put into them afterwards."""

from __future__ import annotations

import onnx_ir as ir

from dragoman.errors import ExportError
from dragoman.export.lowering.fused import DOMAIN
from dragoman.export.rewriting import replace

__all__ = ["fuse_activations", "take_bias_out"]


def take_bias_out(graph: ir.Graph) -> None:
    """The output projection's bias goes to BestTokens, which reads the logits anyway: elsewhere it would be another pass."""
    for node in graph:
        if node.op_type == "BestTokens":
            product = node.inputs[0].producer() if node.inputs[0] is not None else None
            if product is None or product.op_type != "Gemm":
                raise ExportError("the best tokens are not those of a projection")
            if len(product.inputs) > 2:
                node.resize_inputs(3)
                node.replace_input_with(2, product.inputs[2])
                product.resize_inputs(2)
            return
    raise ExportError("the graph chooses no best tokens")


def fuse_activations(graph: ir.Graph) -> None:
    """x · sigmoid(x) -> Silu."""
    for node in list(graph):
        if node.op_type != "Sigmoid":
            continue
        consumers = list(node.outputs[0].consumers())
        if len(consumers) == 1 and consumers[0].op_type == "Mul" and node.inputs[0] in consumers[0].inputs:
            replace(graph, (node, consumers[0]), ir.Node(DOMAIN, "Silu", [node.inputs[0]], name=f"{node.name}.silu"))
