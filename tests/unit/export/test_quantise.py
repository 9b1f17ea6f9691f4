from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dragoman.export.lowering.native.quantised_rows import LARGEST, quantise_rows
from exported_graphs import Exported, eager_logits, export, log_softmax, needs_operators
from forced_steps import random_workload
from random_marian import write_marian


@given(arrays(np.float32, (3, 5), elements=st.floats(-100, 100, width=32)))
def test_a_quantised_weight_is_off_by_half_a_step_at_most(weight: np.ndarray) -> None:
    quantised = quantise_rows(weight)
    assert np.abs(quantised.values).max() <= LARGEST
    error = np.abs(quantised.values * quantised.scale[:, None] - weight)
    assert (error <= quantised.scale[:, None] * 0.5001 + 1e-30).all()


@given(
    arrays(np.int8, (3, 5), elements=st.integers(-127, 127)),
    arrays(np.float32, (3,), elements=st.floats(0.5, 1e4, width=32)),
)
def test_weights_that_were_quantised_before_keep_their_integers(integers: np.ndarray, scales: np.ndarray) -> None:
    """CTranslate2 stores the greatest number of a row as 127, and its scale for the way there."""
    integers[:, 0] = 127
    assert (quantise_rows(integers.astype(np.float32) * (np.float32(1) / scales)[:, None]).values == integers).all()


def test_a_row_of_zeros_stays_zero() -> None:
    quantised = quantise_rows(np.zeros((2, 4), np.float32))
    assert not quantised.values.any()
    assert np.isfinite(quantised.scale).all()


def test_a_large_row_does_not_coarsen_other_rows() -> None:
    weight = np.array([[1000.0, -500.0], [0.015, -0.02]], np.float32)
    assert quantise_rows(weight).values[1].tolist() == [95, -127]


def weights(exported: Exported, role: str) -> dict[str, np.ndarray]:
    graph = onnx.load(exported.directory / f"{role}.native.onnx").graph
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}


@needs_operators
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_no_float_matrix_is_left(tiny_int8: Exported, role: str) -> None:
    left = [name for name, array in weights(tiny_int8, role).items() if array.dtype == np.float32 and array.ndim == 2]
    assert all("positions" in name for name in left), left


@needs_operators
def test_embeddings_and_projection_share_one_int8_matrix(tiny_int8: Exported) -> None:
    for role in ("encoder", "decoder"):
        rows = [name for name, array in weights(tiny_int8, role).items() if array.dtype == np.int8 and array.shape[0] == 4]
        assert len(rows) == 1, rows  # 53 tokens are four tiles of 16; no other matrix has so many


@needs_operators
def test_int8_stays_close_to_fp32(tiny_fp32: Exported, tiny_int8: Exported) -> None:
    work = random_workload(53, 53, start=52)
    exact, quantised = (exported.stepper("native").run(work, candidates=53) for exported in (tiny_fp32, tiny_int8))
    for one, two in zip(exact, quantised, strict=True):
        probabilities, others = (
            np.take_along_axis(np.exp(best.log_probs), np.argsort(best.tokens, -1), -1) for best in (one, two)
        )
        assert np.abs(probabilities - others).max() < 0.05


@pytest.fixture(scope="module")
def unshared(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """As in real models, most weights are embeddings; here the source has its own."""
    directory = tmp_path_factory.mktemp("unshared")
    sizes = {"vocab_size": 4000, "decoder_vocab_size": 5000, "d_model": 64, "share_encoder_decoder_embeddings": False}
    return export(directory / "int8", write_marian(directory / "model", **sizes), ("native",), "int8")


@needs_operators
def test_int8_is_little_more_than_a_quarter_of_the_float_weights(unshared: Exported) -> None:
    floats = sum(parameter.nbytes for parameter in unshared.checkpoint.model.parameters())
    assert (unshared.directory / "weights.bin").stat().st_size < 0.3 * floats  # a second copy would make it 0.4


@needs_operators
def test_every_matrix_uses_all_eight_bits(unshared: Exported) -> None:
    matrices = [array for array in weights(unshared, "encoder").values() if array.dtype == np.int8]
    assert len(matrices) > 4
    assert {np.abs(matrix.astype(int)).max() for matrix in matrices} == {LARGEST}


@needs_operators
def test_unshared_embeddings_stay_close_to_fp32(unshared: Exported) -> None:
    work = random_workload(4000, 5000, start=4999)
    exact = eager_logits(unshared.checkpoint.model, work)
    for step, best in enumerate(unshared.stepper("native").run(work)):
        named = np.take_along_axis(log_softmax(exact[:, step]), best.tokens, -1)
        assert np.abs(named - best.log_probs).max() < 0.3
