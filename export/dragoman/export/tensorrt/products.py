"""Does a graph multiply matrices in fp32? Old GPUs can't."""

from __future__ import annotations

from pathlib import Path

import onnx

__all__ = ["multiplies_in_fp32"]


def multiplies_in_fp32(path: Path) -> bool:
    """Whether any MatMul or Gemm of the graph gives fp32 (products of dequantised int8 count: their scales are fp32)."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    fp16 = {value.name for value in values if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    return any(node.op_type in ("MatMul", "Gemm") and node.output[0] not in fp16 for node in model.graph.node)
