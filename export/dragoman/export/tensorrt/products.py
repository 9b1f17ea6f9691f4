"""Finds the types in which a graph multiplies matrices: old GPUs do not support all of them."""

from __future__ import annotations

from pathlib import Path

import onnx

__all__ = ["wide_products"]

_NARROW = onnx.TensorProto.FLOAT16


def wide_products(path: Path) -> set[str]:
    """The types of the MatMul and Gemm of a graph that are not float16 (products of int8 have those of their scales)."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    products = (node.output[0] for node in model.graph.node if node.op_type in ("MatMul", "Gemm"))
    found = {types.get(name, onnx.TensorProto.FLOAT) for name in products} - {_NARROW}
    return {"fp32" if kind == onnx.TensorProto.FLOAT else onnx.TensorProto.DataType.Name(kind).lower() for kind in found}
