"""The output projection with the choice of the best tokens, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import BEST, Array, close, floats, random, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")


def best(logits: Array, candidates: int, *bias: Array) -> list[Array]:
    """Of weights whose outputs are these logits: row r of the inputs is one at r, and nothing elsewhere."""
    rows, vocabulary = logits.shape
    weights = np.zeros((vocabulary, 8), np.float32)
    weights[:, :rows] = logits.T
    inputs = (np.eye(rows, 8, dtype=np.float32), in_float_tiles(weights), np.array([candidates]), *bias)
    return run("FloatBestOutputs", *inputs, outputs=BEST, vocabulary=vocabulary)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12000), st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.data())
def test_the_best_tokens_are_those_of_a_stable_sort(
    vocabulary: int, seed: int, biased: bool, many_equal: bool, data: st.DataObject
) -> None:
    draw = np.random.default_rng(seed)
    logits = draw.integers(-3, 3, (3, vocabulary)) if many_equal else draw.normal(0, 8, (3, vocabulary))
    logits = logits.astype(np.float32)
    bias = [draw.integers(-2, 2, vocabulary).astype(np.float32)] if biased else []
    candidates = data.draw(st.integers(1, vocabulary) | st.integers(1, min(16, vocabulary)))
    tokens, log_probs, found = best(logits, candidates, *bias)
    summed = logits + bias[0] if biased else logits
    expected = np.argsort(-summed, axis=-1, kind="stable")[:, :candidates]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(summed, expected, -1))
    wide = summed.astype(np.float64)
    normaliser = np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1, keepdims=True)) + wide.max(-1, keepdims=True)
    close(log_probs, np.take_along_axis(wide, expected, -1) - normaliser, 4e-6)


def test_logits_may_be_infinitely_small() -> None:
    """A whole stretch of the vocabulary may be forbidden, from its beginning on."""
    bias = np.full(30000, -np.inf, np.float32)
    bias[20000:20003] = 1.0, 3.0, 2.0
    tokens, log_probs, _ = best(np.zeros((1, 30000), np.float32), 3, bias)
    assert tokens.tolist() == [[20001, 20002, 20000]]
    close(np.exp(log_probs).sum(-1), np.ones(1, np.float32), 1e-5)


@pytest.mark.parametrize("vocabulary", [130, 9000])
def test_logits_that_are_no_numbers_crash_nothing(vocabulary: int) -> None:
    tokens, _, _ = best(np.full((2, vocabulary), np.nan, np.float32), 5)
    assert tokens.shape == (2, 5)
    assert ((tokens >= 0) & (tokens < vocabulary)).all()


@pytest.mark.parametrize("rows", [1, 48, 49, 100, 193])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("vocabulary", "inputs"), [(70, 16), (9001, 13)])
@pytest.mark.parametrize("scale", [1.0, 0.125])
def test_the_best_outputs_are_those_of_the_product(
    rows: int, biased: bool, vocabulary: int, inputs: int, scale: float
) -> None:
    """Also of so many rows and tokens that they are computed in several parts."""
    x, weights = floats(rows, inputs), floats(vocabulary, inputs)
    bias = [floats(vocabulary)] if biased else []
    quantised = np.round(weights * 20).clip(-63, 63).astype(np.int8)
    scales = np.full(vocabulary, 0.05, np.float32)
    integers = (in_tiles(quantised), scales, quantised.sum(1).astype(np.float32) * scales)
    for name, stored in (("BestOutputs", integers), ("FloatBestOutputs", (in_float_tiles(weights),))):
        is_float = name.startswith("Float")
        tokens, _, found = run(
            name,
            x,
            *stored,
            np.array([4]),
            *bias,
            outputs=BEST,
            scale=scale,
            **({"vocabulary": vocabulary} if is_float else {}),
        )
        columns = {"columns": vocabulary} if is_float else {}
        (logits,) = run(name.replace("BestOutputs", "Linear"), x, *stored, activation=0, **columns)
        summed = logits * np.float32(scale) + (bias[0] if biased else np.float32(0))
        expected = np.argsort(-summed, axis=-1, kind="stable")[:, :4]
        np.testing.assert_array_equal(tokens, expected)
        np.testing.assert_array_equal(found, np.take_along_axis(summed, expected, -1))


@pytest.mark.parametrize("rows", [48, 49, 200, 385])
def test_log_probabilities_are_those_of_a_row_alone(rows: int) -> None:
    """However many tokens of how many rows are computed at once."""
    x, weights = floats(rows, 8), floats(20_000, 8)
    stored = in_float_tiles(weights), np.array([3])
    together = run("FloatBestOutputs", x, *stored, outputs=BEST, vocabulary=20_000)
    for row in range(0, rows, 47):
        alone = run("FloatBestOutputs", x[row : row + 1].copy(), *stored, outputs=BEST, vocabulary=20_000)
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], many[row])


def test_a_vocabulary_of_nllb_is_no_multiple_of_eight() -> None:
    vocabulary = 256_206
    x, values = floats(3, 16), random.integers(-63, 64, (vocabulary, 16)).astype(np.int8)
    scale = np.full(vocabulary, 0.01, np.float32)
    stored = (in_tiles(values), scale, values.sum(1).astype(np.float32) * scale)
    tokens, log_probs, logits = run("BestOutputs", x, *stored, np.array([8]), outputs=BEST)
    (all_logits,) = run("Linear", x, *stored, activation=0)
    expected = np.argsort(-all_logits, axis=-1, kind="stable")[:, :8]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(logits, np.take_along_axis(all_logits, expected, -1))
    wide = all_logits.astype(np.float64)
    close(log_probs, np.take_along_axis(wide, expected, -1) - np.log(np.exp(wide).sum(-1, keepdims=True)), 1e-5)


@pytest.mark.parametrize("name", ["BestOutputs", "FloatBestOutputs"])
@pytest.mark.parametrize("rows", [1, 49, 100])
@pytest.mark.parametrize("biased", [False, True])
def test_scored_tokens_stand_behind_the_best(name: str, rows: int, biased: bool) -> None:
    vocabulary = 9001
    x, weights = floats(rows, 16), floats(vocabulary, 16)
    quantised = np.round(weights * 20).clip(-63, 63).astype(np.int8)
    scales = np.full(vocabulary, 0.05, np.float32)
    integers = (in_tiles(quantised), scales, quantised.sum(1).astype(np.float32) * scales)
    stored, more = ((in_float_tiles(weights),), {"vocabulary": vocabulary}) if name.startswith("Float") else (integers, {})
    bias = floats(vocabulary) if biased else None
    every = run(name, x, *stored, np.array([vocabulary]), bias, outputs=BEST, **more)
    scored_tokens = random.integers(-1, vocabulary, (rows, 3))
    scored_tokens[0] = [0, vocabulary - 1, -1]
    found = run(name, x, *stored, np.array([4]), bias, scored_tokens, outputs=BEST, **more)
    order = np.argsort(every[0], axis=1)  # the place of each token among all
    places = np.take_along_axis(order, np.maximum(scored_tokens, 0), 1)
    np.testing.assert_array_equal(found[0], np.concatenate([every[0][:, :4], np.maximum(scored_tokens, 0)], 1))
    for numbers, all_numbers in zip(found[1:], every[1:], strict=True):
        expected = np.where(scored_tokens < 0, -np.inf, np.take_along_axis(all_numbers, places, 1))
        np.testing.assert_array_equal(numbers, np.concatenate([all_numbers[:, :4], expected], 1))


@pytest.mark.parametrize("scored_tokens", [np.full((2, 1), 70), np.full((2, 1), -2), np.zeros((3, 1), np.int64)])
def test_tokens_that_the_vocabulary_lacks_are_not_looked_up(scored_tokens: Array) -> None:
    with pytest.raises(Exception, match="scored"):
        run(
            "FloatBestOutputs",
            floats(2, 16),
            in_float_tiles(floats(70, 16)),
            np.array([4]),
            None,
            scored_tokens,
            outputs=BEST,
            vocabulary=70,
        )
