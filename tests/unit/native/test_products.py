"""Linear layers and embeddings in tiles, in both precisions, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import Array, close, floats, random, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the kernels are not built: no C++ compiler")

ROWS, SEEDS = st.integers(1, 20), st.integers(0, 2**32 - 1)


def test_embeddings_are_rows_times_their_scales() -> None:
    table, scales = random.integers(-127, 128, (21, 24)).astype(np.int8), floats(21)
    tokens = np.array([20, 0, 3, 3, 16])
    (embedded,) = run("Embed", in_tiles(table), scales, tokens)
    np.testing.assert_array_equal(embedded, table[tokens] * scales[tokens, None])


def linear(x: Array, values: Array, scale: Array, *bias: Array, activation: int = 0) -> Array:
    offset = values.sum(1).astype(np.float32) * scale
    return run("Linear", x, in_tiles(values), scale, offset, *bias, activation=activation)[0]


def quantised(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Each row on a grid of 128 steps between its least and its greatest number."""
    least, greatest = x.min(1, keepdims=True).astype(np.float64), x.max(1, keepdims=True).astype(np.float64)
    step = np.where(greatest > least, (greatest - least) / 127, 1)
    return np.floor((x - least) / step + 0.5) * step + least


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(1, 9), st.integers(1, 150), SEEDS, st.booleans(), st.booleans())
def test_products_are_those_of_the_quantised_rows(
    rows: int, eights: int, outputs: int, seed: int, biased: bool, activated: bool
) -> None:
    draw = np.random.default_rng(seed)
    x = draw.normal(0, 3, (rows, 8 * eights)).astype(np.float32)
    values = draw.integers(-63, 64, (outputs, 8 * eights)).astype(np.int8)
    scale = draw.uniform(0.001, 0.1, outputs).astype(np.float32)
    bias = [draw.normal(0, 1, outputs).astype(np.float32)] if biased else []
    expected = quantised(x) @ values.T * scale + (bias[0] if biased else 0)
    if activated:
        expected = expected / (1 + np.exp(-expected))
    # A number in the middle between two steps may be rounded either way: half a step of one input.
    step = (x.max(1) - x.min(1)).max() / 127
    ours = linear(x, values, scale, *bias, activation=int(activated))
    assert np.abs(ours - expected).max() <= 1e-3 + 1.2 * step * 63 * scale.max()


def test_extreme_products_do_not_saturate() -> None:
    x = np.tile(np.array([0.0, 127.0, 127.0, 127.0], np.float32), (5, 16))
    values = np.full((33, 64), 63, np.int8)
    scale = np.ones(33, np.float32)
    np.testing.assert_array_equal(linear(x, values, scale), np.full((5, 33), 63 * 48 * 127, np.float32))
    np.testing.assert_array_equal(linear(x, -values, scale), np.full((5, 33), -63 * 48 * 127, np.float32))


def test_rows_of_one_number_are_exact() -> None:
    values, scale = random.integers(-63, 64, (20, 8)).astype(np.int8), floats(20)
    close(linear(np.full((3, 8), 2.5, np.float32), values, scale), np.tile(values.sum(1) * 2.5 * scale, (3, 1)), 1e-5)


def test_a_row_says_the_same_in_any_company() -> None:
    x, values, scale = floats(37, 64), random.integers(-63, 64, (200, 64)).astype(np.int8), floats(200)
    x[5] *= 1000
    together = linear(x, values, scale)
    for row in range(37):
        np.testing.assert_array_equal(linear(x[row : row + 1].copy(), values, scale)[0], together[row])


def test_embeddings_in_float_are_rows() -> None:
    table, tokens = floats(21, 24), np.array([20, 0, 3, 3, 16])
    (embedded,) = run("FloatEmbed", in_float_tiles(table), tokens, vocabulary=21)
    np.testing.assert_array_equal(embedded, table[tokens])


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(1, 9), st.integers(1, 150), SEEDS, st.booleans(), st.booleans())
def test_products_in_float(rows: int, eights: int, outputs: int, seed: int, biased: bool, activated: bool) -> None:
    draw = np.random.default_rng(seed)
    x, weights = (draw.normal(0, 1, (count, 8 * eights)).astype(np.float32) for count in (rows, outputs))
    bias = [draw.normal(0, 1, outputs).astype(np.float32)] if biased else []
    expected = x.astype(np.float64) @ weights.T + (bias[0] if biased else 0)
    if activated:
        expected = expected / (1 + np.exp(-expected))
    ours = run("FloatLinear", x, in_float_tiles(weights), *bias, activation=int(activated), columns=outputs)[0]
    close(ours, expected, 1e-4)


def test_a_row_in_float_says_the_same_in_any_company() -> None:
    x, tiles = floats(37, 64), in_float_tiles(floats(200, 64))
    (together,) = run("FloatLinear", x, tiles, activation=0, columns=200)
    for row in range(37):
        (alone,) = run("FloatLinear", x[row : row + 1].copy(), tiles, activation=0, columns=200)
        np.testing.assert_array_equal(alone[0], together[row])
