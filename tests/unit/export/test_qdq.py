from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from dragoman.export.lowering.portable.qdq import insert_qdq, quantise_weight

WIDTH, HIDDEN, VOCABULARY = 8, 12, 20
RANGES = {"layer.query": 1.0, "layer.key": 1.0, "output": 2.0}


def little_model(dtype: str = "float", embedding: str = "output.weight") -> ir.Model:
    """Embedding, two linear layers with one input, a product of activations, and the tied output projection."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        little (int64[rows] tokens) => ({dtype}[rows, {VOCABULARY}] logits) {{
            embedded = Gather({embedding.replace(".", "_")}, tokens)
            query = MatMul(embedded, layer_query_weight)
            key = MatMul(embedded, layer_key_weight)
            turned = Transpose<perm=[1, 0]>(key)
            scores = MatMul(query, turned)
            seen = MatMul(scores, embedded)
            logits = Gemm<transB=1>(seen, {embedding.replace(".", "_")})
        }}""")
    random, kind = np.random.default_rng(3), np.float32 if dtype == "float" else np.float16
    shapes = {
        embedding: (VOCABULARY, WIDTH),
        "layer.query.weight": (WIDTH, HIDDEN),
        "layer.key.weight": (WIDTH, HIDDEN),
    }
    for name, shape in shapes.items():
        for node in model.graph.node:  # ONNX's text form has no dots in its names
            node.input[:] = [name if value == name.replace(".", "_") else value for value in node.input]
        array = random.standard_normal(shape) * 0.3
        model.graph.initializer.append(numpy_helper.from_array(array.astype(kind), name))
    return ir.serde.deserialize_model(model)


def run(model: ir.Model, directory: Path) -> NDArray[np.float32]:
    path = directory / "model.onnx"
    ir.save(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(str(path), options)
    logits: NDArray[np.float32] = session.run(None, {"tokens": np.arange(5)})[0]
    return logits


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_a_quantised_graph_stays_close_to_the_original(dtype: str, tmp_path: Path) -> None:
    exact, model = run(little_model(dtype), tmp_path), little_model(dtype)
    assert insert_qdq(model, RANGES) == ("layer.key", "layer.query", "output")
    quantised = run(model, tmp_path)
    assert 0 < np.abs(quantised - exact).max() < 0.1 * np.abs(exact).max()


def test_the_products_of_two_activations_stay_as_they_are() -> None:
    model = little_model()
    insert_qdq(model, RANGES)
    products = [node for node in model.graph if node.op_type == "MatMul"]
    sources = [[value.producer().op_type for value in node.inputs] for node in products]  # type: ignore[union-attr]
    assert sources.count(["DequantizeLinear", "DequantizeLinear"]) == 2
    assert ["MatMul", "Transpose"] in sources


def test_layers_with_one_input_quantise_it_once() -> None:
    model = little_model()
    insert_qdq(model, RANGES)
    assert operators(model)["QuantizeLinear"] == 2  # of the common input, and of the projection's
    assert operators(model)["DequantizeLinear"] == 2 + 3


def test_layers_that_disagree_about_a_range_quantise_apart() -> None:
    model = little_model()
    insert_qdq(model, {**RANGES, "layer.key": 2.0})
    assert operators(model)["QuantizeLinear"] == 3


def test_a_layer_without_a_range_stays_as_it_is() -> None:
    model = little_model()
    assert insert_qdq(model, {"layer.query": 1.0, "layer.key": 0.0, "nowhere": 1.0}) == ("layer.query",)
    assert operators(model)["QuantizeLinear"] == 1


def test_unused_weights_are_removed_and_the_embedding_is_kept() -> None:
    model = little_model()
    insert_qdq(model, RANGES)
    assert "layer.query.weight" not in model.graph.initializers
    assert "output.weight" in model.graph.initializers
    assert model.graph.initializers["layer.query.weight_int8"].dtype == ir.DataType.INT8


def test_a_projection_that_goes_by_its_tied_embedding_is_quantised_too() -> None:
    model = little_model(embedding="target_embedding.weight")
    assert "output" in insert_qdq(model, RANGES)
    assert {"output.weight_int8", "target_embedding.weight"} <= set(model.graph.initializers)


def test_only_float16_graphs_need_a_newer_opset() -> None:
    versions = {}
    for dtype in ("float", "float16"):
        model = little_model(dtype)
        insert_qdq(model, RANGES)
        versions[dtype] = model.opset_imports[""]
    assert versions == {"float": 18, "float16": 19}


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_weight_is_at_most_half_a_step_away_in_every_channel(kind: type[np.floating], axis: int) -> None:
    weight = (np.random.default_rng(1).standard_normal((6, 40)) * np.geomspace(1e-3, 1e3, 6)[:, None]).astype(kind)
    weight = weight if axis == 0 else weight.T
    scale, levels = quantise_weight(weight, axis)
    assert scale.shape == (6,)
    assert np.abs(levels).max() == 127
    steps = np.expand_dims(scale.astype(np.float32), 1 - axis)
    # A float16 scale is itself rounded, by a thousandth at most; at the end of the range that adds to the rounding.
    assert (np.abs(levels * steps - weight.astype(np.float32)) <= 0.5 * steps + np.abs(weight) * 1e-3).all()


def test_a_channel_of_zeros_stays_zero() -> None:
    scale, levels = quantise_weight(np.zeros((3, 2), np.float16), 1)
    assert not levels.any()
    assert (scale > 0).all()
