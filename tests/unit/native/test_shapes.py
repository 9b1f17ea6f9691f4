"""Shape inference: what a session says about its results before it runs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from dragoman import native
from one_operator import Array, floats, ints, model, opened

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")

ATTENTION = {"heads": 3, "head_dim": 16, "scale": 0.3}
Sizes = list[str | int]


def inferred(name: str, inputs: dict[str, Array], sizes: dict[str, Sizes], **attributes: object) -> Sizes:
    """The shape of the result; `sizes` are those of inputs, numbers or names."""
    node = helper.make_node(name, list(inputs), ["made"], domain="dragoman", **attributes)
    graph = model([node], inputs, {"made": TensorProto.FLOAT})
    for value in graph.graph.input:
        for dimension, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, ()), strict=False):
            if isinstance(size, int):
                dimension.dim_value = size
            else:
                dimension.dim_param = size
    (output,) = opened(graph).get_outputs()
    return list(output.shape)


def test_rows_keep_their_name_and_columns_get_their_number() -> None:
    cache, slots = floats(1, 8, 96), np.zeros((2, 4), np.int32)
    inputs = {"packed": floats(2, 144), "cache": cache, "slots": slots, "positions": ints(0, 0)}
    shape = inferred("StepAttention", inputs, {"packed": ["rows", 144]}, layer=0, **ATTENTION)
    assert shape == ["rows", 48]


def test_a_linear_layer_has_as_many_columns_as_outputs() -> None:
    inputs = {"x": floats(2, 8), "tiles": floats(1, 128)}
    assert inferred("FloatLinear", inputs, {"x": ["rows", 8]}, columns=4) == ["rows", 4]
    scale = np.zeros(4, np.float32)
    inputs = {"x": floats(2, 8), "tiles": np.zeros((1, 128), np.int8), "scale": scale, "offset": scale}
    assert inferred("Linear", inputs, {"x": ["rows", 8], "scale": [4]}) == ["rows", 4]


def test_norms_and_embeddings_know_their_width() -> None:
    inputs = {"x": floats(2, 8), "gamma": floats(8)}
    assert inferred("Norm", inputs, {"x": [7, 8]}, epsilon=1e-5) == [7, 8]
    inputs = {"table": floats(1, 128), "tokens": np.array([0])}
    sizes = {"table": [1, 128], "tokens": ["tokens"]}
    assert inferred("FloatEmbed", inputs, sizes, vocabulary=9) == ["tokens", 8]


def test_what_is_not_known_is_not_guessed() -> None:
    inputs = {"x": floats(2, 8), "gamma": floats(8)}
    assert inferred("Norm", inputs, {}, epsilon=1e-5) == [None, None]


def test_a_missing_input_before_a_given_one_is_no_problem() -> None:
    weight, bias = floats(1, 128), floats(4)
    node = helper.make_node("FloatGatedLinear", ["x", "w", "w", "", "b"], ["made"], domain="dragoman", columns=4)
    graph = model([node], {"x": floats(2, 8), "w": weight, "b": bias}, {"made": TensorProto.FLOAT})
    (output,) = opened(graph).get_outputs()
    assert len(output.shape) == 2
