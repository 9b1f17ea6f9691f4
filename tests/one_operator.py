"""One custom operator alone, in the real ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from dragoman import native

__all__ = ["BEST", "STEPS", "Array", "Integers", "close", "floats", "ints", "model", "opened", "quantised", "random", "run"]

Array = NDArray[np.generic]
Integers = tuple[Array, Array, Array]
BEST = (TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT)
STEPS = 127 if native.processor() == "avx2" else 255
"""Of the inputs of int8 products: AVX2 would saturate with more."""
random = np.random.default_rng(11)


def floats(*shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


def close(ours: Array, expected: Array, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(ours, expected, atol=tolerance, rtol=tolerance)


def quantised(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Each row on a grid of `STEPS` steps between its smallest and its largest number, as the int8 operators read it."""
    least, greatest = x.min(1, keepdims=True).astype(np.float64), x.max(1, keepdims=True).astype(np.float64)
    step = np.where(greatest > least, (greatest - least) / STEPS, 1)
    return np.floor((x - least) / step + 0.5) * step + least


def model(nodes: Sequence[NodeProto], inputs: dict[str, Array], outputs: dict[str, int]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "custom operators",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, [None, None]) for name, kind in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("dragoman", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def opened(made: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.register_custom_ops_library(str(native.ops_library()))
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(
    name: str, *inputs: Array | None, outputs: Sequence[int] = (TensorProto.FLOAT,), **attributes: object
) -> list[Array]:
    """The operator on arrays where they lie: it may write to them. None is an input that is missing."""
    names = ["" if array is None else f"in{at}" for at, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    made = {f"out{at}": kind for at, kind in enumerate(outputs)}
    node = helper.make_node(name, names, list(made), domain="dragoman", **attributes)
    session = opened(model([node], given, made))
    binding = session.io_binding()
    for bound, array in given.items():
        binding.bind_input(bound, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for bound in made:
        binding.bind_output(bound)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
