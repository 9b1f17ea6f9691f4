"""One of our operators alone, in the real ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dragoman import native

__all__ = ["Array", "close", "floats", "ints", "random", "run"]

Array = NDArray[np.generic]
random = np.random.default_rng(11)


def floats(*shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


def close(ours: Array, expected: Array, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(ours, expected, atol=tolerance, rtol=tolerance)


def session(
    name: str, inputs: Sequence[Array], outputs: Sequence[int], **attributes: object
) -> onnxruntime.InferenceSession:
    names = [f"in{at}" for at in range(len(inputs))]
    made = [f"out{at}" for at in range(len(outputs))]
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in inputs]
    graph = helper.make_graph(
        [helper.make_node(name, names, made, domain="dragoman", **attributes)],
        "one operator",
        [
            helper.make_tensor_value_info(n, kind, [None] * array.ndim)
            for n, kind, array in zip(names, kinds, inputs, strict=True)
        ],
        [helper.make_tensor_value_info(n, kind, [None, None]) for n, kind in zip(made, outputs, strict=True)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("dragoman", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.register_custom_ops_library(str(native.ops_library()))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(name: str, *inputs: Array, outputs: Sequence[int] = (TensorProto.FLOAT,), **attributes: object) -> list[Array]:
    """The operator on arrays where they lie: it may write to them."""
    opened = session(name, inputs, outputs, **attributes)
    binding = opened.io_binding()
    for at, array in enumerate(inputs):
        binding.bind_input(f"in{at}", "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for at in range(len(outputs)):
        binding.bind_output(f"out{at}")
    opened.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()
