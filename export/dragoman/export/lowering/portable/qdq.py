"""int8 for TensorRT: explicit QuantizeLinear and DequantizeLinear around the matrix products of the linear layers.

A strongly typed network takes its precision from the graph: a product of two dequantised int8 tensors becomes an int8
product. Weights are int8 with a scale for each output channel, activations int8 with one calibrated scale; both are
symmetric, because TensorRT has no zero points. Everything between the linear layers keeps the graph's precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["insert_qdq"]

Floats: TypeAlias = NDArray[np.floating[Any]]

LEVELS = 127
PROJECTION = "output"

FP16_QDQ_OPSET = 19
"""The first whose QuantizeLinear and DequantizeLinear take and give float16."""


def insert_qdq(model: ir.Model, ranges: Mapping[str, float]) -> tuple[str, ...]:
    """Quantise in place every linear layer of `model` that `ranges` names; returns their module names.

    `ranges` maps a module to the largest input to represent. A module's weight is the initializer "<module>.weight";
    the output projection is the one Gemm.
    """
    linears = [linear for node in model.graph if (linear := _linear(node)) is not None]
    chosen = [linear for linear in linears if ranges.get(linear.module, 0.0) > 0.0]
    quantised: dict[tuple[str, float], ir.Value] = {}
    for linear in chosen:
        activation, reach = linear.node.inputs[0], ranges[linear.module]
        if activation is None:
            continue
        key = (activation.name or "", reach)  # layers that read one tensor in one range read one quantised tensor
        if key not in quantised:
            quantised[key] = _quantised_activation(model, linear, activation, reach)
        linear.node.replace_input_with(0, quantised[key])
        linear.node.replace_input_with(1, _quantised_weight(model, linear))
    _drop_unused_weights(model, chosen)
    if any(linear.dtype == ir.DataType.FLOAT16 for linear in chosen):
        model.opset_imports[""] = max(model.opset_imports[""], FP16_QDQ_OPSET)
    return tuple(sorted(linear.module for linear in chosen))


@dataclass(frozen=True, slots=True)
class _Linear:
    """A product with a stored matrix: MatMul with (inputs, outputs), or Gemm with transB with (outputs, inputs)."""

    node: ir.Node
    module: str
    weight: ir.Value
    channel_axis: int
    dtype: ir.DataType


def _linear(node: ir.Node) -> _Linear | None:
    if node.op_type not in ("MatMul", "Gemm"):
        return None
    weight = node.inputs[1]
    if weight is None or not weight.is_initializer() or weight.name is None or weight.const_value is None:
        return None  # attention multiplies two activations
    projects = node.op_type == "Gemm"  # the only one: a tied weight may go by the embedding's name
    transposed = projects and node.attributes.get_int("transB", 0) == 1
    module = PROJECTION if projects else weight.name.removesuffix(".weight")
    return _Linear(node, module, weight, 0 if transposed else 1, weight.const_value.dtype)


def _quantised_activation(model: ir.Model, linear: _Linear, activation: ir.Value, reach: float) -> ir.Value:
    name = f"{linear.module}.input"
    scale = np.asarray(reach / LEVELS, linear.dtype.numpy())
    constants = [_initializer(model, f"{name}_scale", scale), _initializer(model, f"{name}_zero", np.zeros((), np.int8))]
    quantise = _node("QuantizeLinear", name, [activation, *constants], ir.DataType.INT8)
    restore = _node("DequantizeLinear", name, [quantise.outputs[0], *constants], linear.dtype)
    model.graph.insert_before(linear.node, [quantise, restore])
    return restore.outputs[0]


def _quantised_weight(model: ir.Model, linear: _Linear) -> ir.Value:
    if linear.weight.const_value is None:
        raise AssertionError(f"{linear.weight.name} has no value")  # _linear checked it
    weight = linear.weight.const_value.numpy()
    scale, levels = quantise_weight(weight, linear.channel_axis)
    name = f"{linear.module}.weight"
    constants = [
        _initializer(model, f"{name}_int8", levels),
        _initializer(model, f"{name}_scale", scale),
        _initializer(model, f"{name}_zero", np.zeros(scale.shape, np.int8)),
    ]
    restore = _node("DequantizeLinear", name, constants, linear.dtype, axis=linear.channel_axis)
    model.graph.insert_before(linear.node, restore)
    return restore.outputs[0]


def quantise_weight(
    weight: NDArray[np.floating[Any]], channel_axis: int
) -> tuple[NDArray[np.floating[Any]], NDArray[np.int8]]:
    """Scales (channels,) and int8 levels of a matrix, symmetric and per channel; weight ≈ levels · scale."""
    reach = np.abs(weight.astype(np.float32)).max(1 - channel_axis)
    scale = np.where(reach > 0, reach / LEVELS, 1.0).astype(weight.dtype)
    scale = np.maximum(scale, np.finfo(weight.dtype).tiny)  # a channel of nearly nothing must not divide by zero
    # Divided by the scale as it is stored: in float16 it is not quite the one that was computed.
    levels = np.rint(weight.astype(np.float32) / np.expand_dims(scale.astype(np.float32), 1 - channel_axis))
    return scale, np.clip(levels, -LEVELS, LEVELS).astype(np.int8)


def _drop_unused_weights(model: ir.Model, chosen: list[_Linear]) -> None:
    for linear in chosen:  # the embedding stays: its Gather still reads it
        name = linear.weight.name
        if name in model.graph.initializers and not linear.weight.uses():
            del model.graph.initializers[name]


def _initializer(model: ir.Model, name: str, array: NDArray[np.generic]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    model.graph.register_initializer(value)
    return value


def _node(operator: str, name: str, inputs: list[ir.Value], dtype: ir.DataType, axis: int | None = None) -> ir.Node:
    attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    output = ir.Value(name=f"{name}.{operator}", type=ir.TensorType(dtype))
    return ir.Node("", operator, inputs, attributes, outputs=[output], name=f"{name}.{operator}")
