"""bfloat16 graphs on a CPU, where ONNX Runtime has no kernels for them: computed in float32, rounded after every operation.

A number is rounded where the graph makes it a bfloat16, so the result of an operation is that of a GPU that accumulates in
float32. A GPU that fuses operations rounds less often.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import NodeProto, TensorProto, helper

__all__ = ["emulated", "has_bfloat16"]

_MOVING = frozenset(
    {"Identity", "Reshape", "Transpose", "Gather", "GatherElements", "Slice", "Concat", "Split", "Squeeze", "Unsqueeze"}
    | {"Expand", "Where", "Flatten"}
)
"""What gives some of the numbers that it gets: they are rounded already."""


def has_bfloat16(graph: onnx.GraphProto) -> bool:
    """Whether anything in the graph is bfloat16."""
    return any(tensor.data_type == TensorProto.BFLOAT16 for tensor in graph.initializer)


def emulated(path: Path) -> bytes:
    """The graph in float32; its weights stay in the file beside it. Inputs and outputs are float32, too."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False), strict_mode=True)
    graph = model.graph
    described = (*graph.input, *graph.output, *graph.value_info)
    narrow = {value.name for value in described if value.type.tensor_type.elem_type == TensorProto.BFLOAT16}
    stored = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.BFLOAT16}
    widened = [helper.make_node("Cast", [name], [f"{name}.float32"], to=TensorProto.FLOAT) for name in sorted(stored)]
    nodes = [*widened, *(each for node in graph.node for each in _emulated(node, narrow, stored))]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return bytes(model.SerializeToString())


def _emulated(node: NodeProto, narrow: set[str], stored: set[str]) -> Iterator[NodeProto]:
    """The node on float32 numbers, and the rounding of its results."""
    changed = NodeProto()
    changed.CopyFrom(node)
    for index, name in enumerate(node.input):
        if name in stored:
            changed.input[index] = f"{name}.float32"
    rounded = [name for name in node.output if name in narrow]
    if not rounded or node.op_type in _MOVING:
        yield changed
        return
    for index, name in enumerate(node.output):
        if name in rounded:
            changed.output[index] = f"{name}.exact"
    if node.op_type == "Cast":
        changed.attribute[0].i = TensorProto.FLOAT
    yield changed
    for name in rounded:
        yield helper.make_node("Cast", [f"{name}.exact"], [f"{name}.bfloat16"], to=TensorProto.BFLOAT16)
        yield helper.make_node("Cast", [f"{name}.bfloat16"], [name], to=TensorProto.FLOAT)
