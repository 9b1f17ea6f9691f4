"""Linear layers and embeddings of tiled weights, in both precisions, against numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman import native
from dragoman.export.lowering.native.operators import Activation
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import STEPS, Array, Integers, close, floats, ints, quantised, random, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")

ROWS, INPUTS, OUTPUTS, SEEDS = st.integers(1, 20), st.integers(1, 73), st.integers(1, 150), st.integers(0, 2**32 - 1)
TORCH = {
    Activation.NONE: lambda x: x,
    Activation.SILU: torch.nn.functional.silu,
    Activation.RELU: torch.relu,
    Activation.GELU: torch.nn.functional.gelu,
    Activation.GELU_TANH: lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    Activation.GELU_SIGMOID: lambda x: x * torch.sigmoid(1.702 * x),
}


def activated(x: NDArray[np.float64], activation: Activation) -> NDArray[np.float64]:
    return TORCH[activation](torch.from_numpy(x)).numpy()


def integers(values: Array, scale: Array) -> Integers:
    return in_tiles(values), scale, values.sum(1).astype(np.float32) * scale


def linear(x: Array, values: Array, scale: Array, *bias: Array, activation: int = 0) -> Array:
    return run("Linear", x, *integers(values, scale), *bias, activation=activation)[0]


def float_linear(x: Array, weights: Array, *bias: Array, activation: int = 0) -> Array:
    return run("FloatLinear", x, in_float_tiles(weights), *bias, activation=activation, columns=len(weights))[0]


@pytest.mark.parametrize("activation", Activation)
def test_activations_are_those_of_torch_for_numbers_of_any_size(activation: Activation) -> None:
    special = np.array([0, -0.0, -200, 200, -88, 88, 1e-30, -1e-30, 3e38, -1e4, np.inf], np.float32)
    x = np.concatenate([np.linspace(-12, 12, 5001, dtype=np.float32), special])[None]
    ours = float_linear(np.ones((1, 1), np.float32), x.T.copy(), activation=activation)
    wide = activated(x.astype(np.float64), activation)
    finite = np.isfinite(wide)
    np.testing.assert_allclose(ours[finite], wide[finite], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(ours[~finite], wide[~finite])
    assert np.isnan(
        float_linear(np.ones((1, 1), np.float32), np.full((3, 1), np.nan, np.float32), activation=activation)
    ).all()


@settings(max_examples=40, deadline=None)
@given(ROWS, INPUTS, OUTPUTS, SEEDS, st.booleans(), st.sampled_from(Activation))
def test_int8_products_are_those_of_the_quantised_rows(
    rows: int, inputs: int, outputs: int, seed: int, biased: bool, activation: Activation
) -> None:
    draw = np.random.default_rng(seed)
    x = draw.normal(0, 3, (rows, inputs)).astype(np.float32)
    values = draw.integers(-127, 128, (outputs, inputs)).astype(np.int8)
    scale = draw.uniform(0.001, 0.1, outputs).astype(np.float32)
    bias = [draw.normal(0, 1, outputs).astype(np.float32)] if biased else []
    expected = activated(quantised(x) @ values.T * scale + (bias[0] if biased else 0), activation)
    # A number in the middle between two steps may be rounded either way: half a step of one input.
    step = (x.max(1) - x.min(1)).max() / STEPS
    ours = linear(x, values, scale, *bias, activation=activation)
    assert np.abs(ours - expected).max() <= 1e-3 + 1.4 * step * 127 * scale.max()


@settings(max_examples=40, deadline=None)
@given(ROWS, INPUTS, OUTPUTS, SEEDS, st.booleans(), st.sampled_from(Activation))
def test_float_products_are_those_of_numpy(
    rows: int, inputs: int, outputs: int, seed: int, biased: bool, activation: Activation
) -> None:
    draw = np.random.default_rng(seed)
    x, weights = (draw.normal(0, 1, (count, inputs)).astype(np.float32) for count in (rows, outputs))
    bias = [draw.normal(0, 1, outputs).astype(np.float32)] if biased else []
    expected = activated(x.astype(np.float64) @ weights.T + (bias[0] if biased else 0), activation)
    close(float_linear(x, weights, *bias, activation=activation), expected, 1e-4)


@pytest.mark.parametrize("biases", [(False, False), (True, True), (False, True), (True, False)])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 64), (19, 70), (1, 1)])
@pytest.mark.parametrize("activation", [Activation.GELU_TANH, Activation.RELU, Activation.SILU])
def test_a_gated_layer_is_the_product_of_two(
    biases: tuple[bool, bool], rows: int, inputs: int, outputs: int, activation: Activation
) -> None:
    x, gate, weight = floats(rows, inputs), floats(outputs, inputs), floats(outputs, inputs)
    given_biases = [floats(outputs) if has else None for has in biases]
    while given_biases and given_biases[-1] is None:
        given_biases.pop()
    gate_bias, bias = (np.zeros(outputs, np.float32) if each is None else each for each in (*given_biases, None, None)[:2])
    attributes = {"activation": int(activation), "columns": outputs}
    (ours,) = run("FloatGatedLinear", x, in_float_tiles(gate), in_float_tiles(weight), *given_biases, **attributes)
    factors = [float_linear(x, gate, gate_bias, activation=activation), float_linear(x, weight, bias)]
    close(ours, factors[0] * factors[1], 1e-5)
    values = [random.integers(-127, 128, (outputs, inputs)).astype(np.int8) for _ in range(2)]
    scales = [np.abs(floats(outputs)) * np.float32(0.02) for _ in range(2)]
    packed = [array for value, scale in zip(values, scales, strict=True) for array in integers(value, scale)]
    (ours,) = run("GatedLinear", x, *packed, *given_biases, activation=int(activation))
    gates = linear(x, values[0], scales[0], gate_bias, activation=activation)
    close(ours, gates * linear(x, values[1], scales[1], bias), 1e-5)


def test_extreme_products_do_not_saturate() -> None:
    x = np.tile(np.array([0.0, STEPS, STEPS, STEPS], np.float32), (5, 16))
    values = np.full((33, 64), 127, np.int8)
    scale = np.ones(33, np.float32)
    np.testing.assert_array_equal(linear(x, values, scale), np.full((5, 33), 127 * 48 * STEPS, np.float32))
    np.testing.assert_array_equal(linear(x, -values, scale), np.full((5, 33), -127 * 48 * STEPS, np.float32))


def test_rows_of_one_number_are_exact() -> None:
    values, scale = random.integers(-127, 128, (20, 8)).astype(np.int8), floats(20)
    close(linear(np.full((3, 8), 2.5, np.float32), values, scale), np.tile(values.sum(1) * 2.5 * scale, (3, 1)), 1e-5)


def test_an_int8_product_is_independent_of_batch() -> None:
    x, values, scale = floats(37, 64), random.integers(-127, 128, (200, 64)).astype(np.int8), floats(200)
    x[5] *= 1000
    together = linear(x, values, scale)
    for row in range(37):
        np.testing.assert_array_equal(linear(x[row : row + 1].copy(), values, scale)[0], together[row])


def test_a_float_product_is_independent_of_batch() -> None:
    x, weights = floats(37, 64), floats(200, 64)
    together = float_linear(x, weights)
    for row in range(37):
        np.testing.assert_array_equal(float_linear(x[row : row + 1].copy(), weights)[0], together[row])


@pytest.mark.parametrize("rows", [9, 17, 40])
def test_weights_that_are_read_ahead_change_nothing(rows: int) -> None:
    """Those of a large product are, where it has several parts of rows."""
    x, weights = floats(rows, 520), floats(1030, 520)
    close(float_linear(x, weights), x.astype(np.float64) @ weights.T, 1e-4)
    values, scale = random.integers(-127, 128, (1030, 520)).astype(np.int8), floats(1030)
    together = linear(x, values, scale)
    for row in (0, rows - 1):
        np.testing.assert_array_equal(linear(x[row : row + 1].copy(), values, scale)[0], together[row])


@pytest.mark.parametrize("width", [8, 24, 13])
@pytest.mark.parametrize("positioned", [False, True])
def test_embeddings_are_scaled_rows_plus_positions(width: int, positioned: bool) -> None:
    table, scales = random.integers(-127, 128, (21, width)).astype(np.int8), floats(21)
    tokens, positions, sinusoids = np.array([20, 0, 3, 3, 16]), ints(0, 1, 0, 4, 2), floats(7, width)
    more = [positions, sinusoids] if positioned else []
    added = sinusoids[positions + 2] if positioned else 0
    attributes = {"scale": 5.5, "offset": 2} if positioned else {}
    factor = np.float32(attributes.get("scale", 1))
    (embedded,) = run("Embed", in_tiles(table), scales, tokens, *more, width=width, **attributes)
    close(embedded, table[tokens] * (scales[tokens, None] * factor) + added, 1e-6)
    rows = floats(21, width)
    (embedded,) = run("FloatEmbed", in_float_tiles(rows), tokens, *more, vocabulary=21, **attributes)
    close(embedded, rows[tokens] * factor + added, 1e-6)
    if not positioned:
        np.testing.assert_array_equal(embedded, rows[tokens])
