from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dragoman.export.lowering.rows import EIGHT_BITS, SEVEN_BITS, quantise_rows
from exported_graphs import Exported, eager_logits, export, log_softmax
from forced_steps import random_workload
from random_marian import write_marian


@given(arrays(np.float32, (3, 5), elements=st.floats(-100, 100, width=32)), st.sampled_from([SEVEN_BITS, EIGHT_BITS]))
def test_a_quantised_weight_is_off_by_half_a_step_at_most(weight: np.ndarray, largest: int) -> None:
    quantised = quantise_rows(weight, largest)
    assert np.abs(quantised.values).max() <= largest
    error = np.abs(quantised.values * quantised.scale[:, None] - weight)
    assert (error <= quantised.scale[:, None] * 0.5001 + 1e-30).all()


def test_a_row_of_zeros_stays_zero() -> None:
    quantised = quantise_rows(np.zeros((2, 4), np.float32))
    assert not quantised.values.any()
    assert np.isfinite(quantised.scale).all()


def test_a_large_row_does_not_coarsen_its_neighbours() -> None:
    weight = np.array([[1000.0, -500.0], [0.01, -0.02]], np.float32)
    assert quantise_rows(weight).values[1].tolist() == [32, -63]  # 31.5 rounds to even


def nodes(exported: Exported, role: str) -> list[onnx.NodeProto]:
    return list(onnx.load(exported.directory / f"{role}.cpu.onnx", load_external_data=False).graph.node)


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_no_linear_layer_is_left_in_float(tiny_int8: Exported, role: str) -> None:
    used = [node.op_type for node in nodes(tiny_int8, role)]
    assert "DynamicQuantizeMatMul" in used
    assert not {"MatMul", "Gemm"} & set(used)


def test_biases_are_part_of_the_quantised_product(tiny_int8: Exported) -> None:
    products = [node for node in nodes(tiny_int8, "decoder") if node.op_type == "DynamicQuantizeMatMul"]
    assert [len(node.input) for node in products] == [5] * len(products)


def test_embedding_and_projection_share_one_int8_matrix(tiny_int8: Exported) -> None:
    read = {node.input[0] for node in nodes(tiny_int8, "decoder") if node.op_type == "Gather"}
    (projection,) = (node for node in nodes(tiny_int8, "decoder") if node.op_type == "QGemm")
    assert projection.input[3] in read
    assert projection.input[3] in {node.input[0] for node in nodes(tiny_int8, "encoder") if node.op_type == "Gather"}


def test_no_float_weight_is_left_behind(tiny_int8: Exported) -> None:
    for role in ("encoder", "decoder"):
        graph = onnx.load(tiny_int8.directory / f"{role}.cpu.onnx", load_external_data=False).graph
        left = [t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2]
        assert all("positions" in name or "column" in name for name in left), left


def test_int8_stays_close_to_fp32(tiny_fp32: Exported, tiny_int8: Exported) -> None:
    work = random_workload(53, 53, start=52)
    exact, quantised = (exported.stepper("cpu").run(work, candidates=53) for exported in (tiny_fp32, tiny_int8))
    for one, two in zip(exact, quantised, strict=True):
        probabilities, others = (
            np.take_along_axis(np.exp(best.log_probs), np.argsort(best.tokens, -1), -1) for best in (one, two)
        )
        assert np.abs(probabilities - others).max() < 0.05


def test_int8_writes_its_cache_in_place_like_fp32(tiny_int8: Exported) -> None:
    """One row: with several, dynamic quantisation lets neighbours change a row's last digits."""
    work = random_workload(53, 53, start=52, width=1)
    alone = type(work)(work.sources[:1], work.lengths[:1], work.targets[:1], 1)
    stepper = tiny_int8.stepper("cpu")
    for (_, in_place), apart in zip(stepper.run_in_place(alone), stepper.run(alone), strict=True):
        np.testing.assert_allclose(in_place.log_probs, apart.log_probs, atol=1e-5)


@pytest.fixture(scope="module")
def unshared(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """As real models are, most weights are embeddings; here the source has its own."""
    directory = tmp_path_factory.mktemp("unshared")
    sizes = {"vocab_size": 4000, "decoder_vocab_size": 5000, "d_model": 64, "share_encoder_decoder_embeddings": False}
    return export(directory / "int8", write_marian(directory / "model", **sizes), ("cpu",), "int8")


def test_int8_is_little_more_than_a_quarter_of_the_float_weights(unshared: Exported) -> None:
    floats = sum(parameter.nbytes for parameter in unshared.checkpoint.model.parameters())
    assert (unshared.directory / "weights.bin").stat().st_size < 0.3 * floats  # a second copy would make it 0.4


def test_an_embedding_that_is_never_multiplied_uses_all_eight_bits(unshared: Exported) -> None:
    graph = onnx.load(unshared.directory / "encoder.cpu.onnx").graph
    values = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer if t.name.endswith("int8")}
    assert np.abs(values["source_embedding.weight.int8"]).max() == EIGHT_BITS


def test_unshared_embeddings_stay_close_to_fp32(unshared: Exported) -> None:
    work = random_workload(4000, 5000, start=4999)
    exact = eager_logits(unshared.checkpoint.model, work)
    for step, best in enumerate(unshared.stepper("cpu").run(work)):
        named = np.take_along_axis(log_softmax(exact[:, step]), best.tokens, -1)
        assert np.abs(named - best.log_probs).max() < 0.3
