"""float16 for CPUs, where it computes more slowly than float32: used only to store weights."""

from __future__ import annotations

import onnx_ir as ir

from dragoman.export.weights import INLINE_BYTES

__all__ = ["stored_in_half"]


def stored_in_half(graph: ir.Graph) -> None:
    """Store the weights of a float32 graph as float16; a Cast, which runtimes fold while loading, brings them back."""
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.nbytes < INLINE_BYTES:
            continue
        stored = ir.Value(name=f"{name}.half", const_value=ir.tensor(tensor.numpy().astype("float16")))
        stored.shape, stored.dtype = ir.Shape(tensor.shape.numpy()), ir.DataType.FLOAT16
        graph.initializers.pop(name)
        graph.register_initializer(stored)
        value.const_value = None
        cast = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT.value}, name=f"{name}.cast")
        cast.outputs[0].shape, cast.outputs[0].dtype = stored.shape, ir.DataType.FLOAT
        value.replace_all_uses_with(cast.outputs[0])
        cast.outputs[0].name = name
        graph.insert_before(graph[0], cast)
