"""Small changes to a traced graph, for the passes that rewrite it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dragoman.errors import ExportError

__all__ = ["array_of", "bias_add", "constant", "drop_unused", "replace"]


def bias_add(node: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The Add of a bias right after `node`, and the bias."""
    consumers = list(node.outputs[0].consumers())
    if len(consumers) != 1 or consumers[0].op_type != "Add":
        return None
    other = next(value for value in consumers[0].inputs if value is not node.outputs[0])
    if other is None or other.const_value is None or len(other.const_value.shape) != 1:
        return None
    return consumers[0], other


def array_of(value: ir.Value) -> NDArray[np.float32]:
    """The numbers of a weight."""
    if value.const_value is None:
        raise ExportError(f"{value.name} has no value")
    array: NDArray[np.float32] = value.const_value.numpy()
    return array


def constant(graph: ir.Graph, name: str, array: NDArray[np.generic]) -> ir.Value:
    """The initializer of this name, made of `array` when there is none yet."""
    if name not in graph.initializers:
        tensor = ir.tensor(array, name=name)
        graph.register_initializer(
            ir.Value(name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor)
        )
    return graph.initializers[name]


def drop_unused(graph: ir.Graph) -> None:
    """Initializers that nothing reads any more."""
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        graph.initializers.pop(name)


def replace(graph: ir.Graph, old: tuple[ir.Node, ...], new: ir.Node) -> None:
    """Put `new` where `old` was; the last of `old` gives it its results' names and uses."""
    old = tuple(dict.fromkeys(old))
    results = list(zip(old[-1].outputs, new.outputs, strict=True))
    for result, output in results:
        output.name, output.type, output.shape = result.name, result.type, result.shape
    graph.insert_before(old[0], new)
    for result, output in results:
        result.replace_all_uses_with(output, replace_graph_outputs=True)
    graph.remove(list(reversed(old)), safe=True)
