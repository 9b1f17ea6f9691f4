"""Our operators in the real ONNX Runtime, each against a few lines of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import Array, close, floats, ints, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the kernels are not built: no C++ compiler")

HEADS, HEAD_DIM = 3, 16
WIDTH = HEADS * HEAD_DIM
ATTENTION = {"heads": HEADS, "head_dim": HEAD_DIM, "scale": 0.3}


def softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(
    query: NDArray[np.float32], key: NDArray[np.float32], value: NDArray[np.float32], head_dim: int = HEAD_DIM
) -> NDArray[np.float32]:
    """query (width,), key and value (seen, width) -> (width,)."""
    heads = [slice(first, first + head_dim) for first in range(0, len(query), head_dim)]
    return np.concatenate([softmax(key[:, head] @ query[head] * np.float32(0.3)) @ value[:, head] for head in heads])


def test_every_token_sees_all_of_its_source_and_nothing_else() -> None:
    packed, lengths = floats(24, 3 * WIDTH), ints(9, 1, 14)
    (seen,) = run("SourceAttention", packed, ints(0, 9, 10), lengths, **ATTENTION)
    query, key, value = np.split(packed, 3, axis=1)
    for start, length in ((0, 9), (9, 1), (10, 14)):
        source = slice(start, start + length)
        close(seen[source], np.stack([attention(one, key[source], value[source]) for one in query[source]]))


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 8), (8, 8), (5, 24), (8, 32), (8, 64), (12, 64), (16, 64), (9, 40)])
@pytest.mark.parametrize("length", [1, 7, 33])
def test_heads_of_any_number_and_size(heads: int, head_dim: int, length: int) -> None:
    packed = floats(length, 3 * heads * head_dim)
    (seen,) = run("SourceAttention", packed, ints(0), ints(length), heads=heads, head_dim=head_dim, scale=0.3)
    query, key, value = np.split(packed, 3, axis=1)
    close(seen, np.stack([attention(one, key, value, head_dim) for one in query]), 5e-6)


def test_a_step_writes_its_key_and_value_and_sees_the_cells_it_names() -> None:
    packed, cache, before = floats(3, 3 * WIDTH), floats(2, 12, 2 * WIDTH), None
    before = cache.copy()
    cells = np.array([[5, 1, 8, 0], [2, 7, 3, 4], [9, 0, 0, 0]], np.int32)
    positions = ints(2, 3, 0)
    (seen,) = run("StepAttention", packed, cache, cells, positions, layer=1, **ATTENTION)
    written = [cells[row, positions[row]] for row in range(3)]
    np.testing.assert_array_equal(cache[1, written], packed[:, WIDTH:])
    untouched = np.setdiff1d(np.arange(12), written)
    np.testing.assert_array_equal(cache[1, untouched], before[1, untouched])
    np.testing.assert_array_equal(cache[0], before[0])
    for row in range(3):
        past = cache[1, cells[row, : positions[row] + 1]]
        close(seen[row], attention(packed[row, :WIDTH], past[:, :WIDTH], past[:, WIDTH:]))


@pytest.mark.parametrize("beams", [1, 3, 4, 6])
def test_beams_see_the_source_of_their_group(beams: int) -> None:
    query, cache = floats(2 * beams, WIDTH), floats(3, 20, 2 * WIDTH)
    (seen,) = run("CrossAttention", query, cache, ints(3, 10), ints(5, 9), layer=2, **ATTENTION)
    for row in range(2 * beams):
        source = cache[2, 3:8] if row < beams else cache[2, 10:19]
        close(seen[row], attention(query[row], source[:, :WIDTH], source[:, WIDTH:]))


def test_norms_of_sums() -> None:
    x, update, gamma, beta = floats(5, 24), 10 * floats(5, 24), floats(24), floats(24)
    (normed,) = run("AddNorm", x, update, gamma, beta, epsilon=1e-5)
    added = (x + update).astype(np.float64)
    centred = added - added.mean(-1, keepdims=True)
    close(normed, centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta, 5e-6)


def test_silu_of_numbers_of_any_size() -> None:
    x = np.concatenate([floats(30) * 4, np.array([0, -0.0, -200, 200, -88, 88, 1e-30], np.float32)])[None]
    (activated,) = run("Silu", x)
    wide = x.astype(np.float64)
    close(activated, wide / (1 + np.exp(-wide)), 1e-6)


BEST = (TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT)


def best(logits: Array, candidates: int, *bias: Array) -> list[Array]:
    """Of weights whose outputs are these logits: row r of the inputs is one at r, and nothing elsewhere."""
    rows, vocabulary = logits.shape
    weights = np.zeros((vocabulary, 8), np.float32)
    weights[:, :rows] = logits.T
    inputs = (np.eye(rows, 8, dtype=np.float32), in_float_tiles(weights), np.array([candidates]), *bias)
    return run("FloatBestOutputs", *inputs, outputs=BEST, vocabulary=vocabulary)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2500), st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.data())
def test_the_best_tokens_are_those_of_a_stable_sort(
    vocabulary: int, seed: int, biased: bool, many_equal: bool, data: st.DataObject
) -> None:
    draw = np.random.default_rng(seed)
    logits = draw.integers(-3, 3, (3, vocabulary)) if many_equal else draw.normal(0, 8, (3, vocabulary))
    logits = logits.astype(np.float32)
    bias = [draw.integers(-2, 2, vocabulary).astype(np.float32)] if biased else []
    candidates = data.draw(st.integers(1, vocabulary))
    tokens, log_probs, said = best(logits, candidates, *bias)
    summed = logits + bias[0] if biased else logits
    expected = np.argsort(-summed, axis=-1, kind="stable")[:, :candidates]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(said, np.take_along_axis(summed, expected, -1))
    wide = summed.astype(np.float64)
    normaliser = np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1, keepdims=True)) + wide.max(-1, keepdims=True)
    close(log_probs, np.take_along_axis(wide, expected, -1) - normaliser, 4e-6)


def test_logits_may_be_infinitely_small() -> None:
    """A whole stretch of the vocabulary may be forbidden, from its beginning on."""
    bias = np.full(3000, -np.inf, np.float32)
    bias[2000:2003] = 1.0, 3.0, 2.0
    tokens, log_probs, _ = best(np.zeros((1, 3000), np.float32), 3, bias)
    assert tokens.tolist() == [[2001, 2002, 2000]]
    close(np.exp(log_probs).sum(-1), np.ones(1, np.float32), 1e-5)


def test_logits_that_are_no_numbers_crash_nothing() -> None:
    tokens, _, _ = best(np.full((2, 130), np.nan, np.float32), 5)
    assert tokens.shape == (2, 5)
    assert ((tokens >= 0) & (tokens < 130)).all()


@pytest.mark.parametrize("rows", [1, 47, 48, 49, 100])
@pytest.mark.parametrize("biased", [False, True])
def test_the_best_outputs_are_those_of_the_product(rows: int, biased: bool) -> None:
    """Also of so many rows that they are computed in several parts."""
    x, weights = floats(rows, 16), floats(70, 16)
    bias = [floats(70)] if biased else []
    quantised = np.round(weights * 20).astype(np.int8)
    scale = np.full(70, 0.05, np.float32)
    integers = (in_tiles(quantised), scale, quantised.sum(1).astype(np.float32) * scale)
    for name, stored in (("BestOutputs", integers), ("FloatBestOutputs", (in_float_tiles(weights),))):
        is_float = name.startswith("Float")
        tokens, _, said = run(
            name, x, *stored, np.array([4]), *bias, outputs=BEST, **({"vocabulary": 70} if is_float else {})
        )
        columns = {"columns": 70} if is_float else {}
        (logits,) = run(name.replace("BestOutputs", "Linear"), x, *stored, activation=0, **columns)
        summed = logits + bias[0] if biased else logits
        expected = np.argsort(-summed, axis=-1, kind="stable")[:, :4]
        np.testing.assert_array_equal(tokens, expected)
        np.testing.assert_array_equal(said, np.take_along_axis(summed, expected, -1))


TOKENS = np.array([0, 9])


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "attributes"),
    [
        (
            "StepAttention",
            (floats(2, 3 * WIDTH), floats(1, 8, 2 * WIDTH), np.zeros((2, 4), np.int32), ints(0, 4)),
            1,
            {"layer": 0},
        ),
        (
            "StepAttention",
            (floats(2, 3 * WIDTH), floats(1, 8, 2 * WIDTH), np.zeros((2, 4), np.int32), ints(0, -1)),
            1,
            {"layer": 0},
        ),
        (
            "StepAttention",
            (floats(2, 3 * WIDTH), floats(1, 8, 2 * WIDTH), np.zeros((2, 4), np.int32), ints(0, 0)),
            1,
            {"layer": 1},
        ),
        (
            "StepAttention",
            (floats(2, 3 * WIDTH), floats(1, 8, WIDTH), np.zeros((2, 4), np.int32), ints(0, 0)),
            1,
            {"layer": 0},
        ),
        ("CrossAttention", (floats(2, WIDTH), floats(1, 8, 2 * WIDTH), ints(0, 6), ints(3, 3)), 1, {"layer": 0}),
        ("CrossAttention", (floats(3, WIDTH), floats(1, 8, 2 * WIDTH), ints(0, 6), ints(3, 2)), 1, {"layer": 0}),
        ("CrossAttention", (floats(2, WIDTH), floats(1, 8, 2 * WIDTH), ints(0, -1), ints(3, 2)), 1, {"layer": 0}),
        ("SourceAttention", (floats(4, 3 * WIDTH), ints(0, 2), ints(2, 3)), 1, {}),
        ("SourceAttention", (floats(4, 3 * WIDTH), ints(0, 2), ints(2, 0)), 1, {}),
        ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), TOKENS), 1, None),
        ("Embed", (np.zeros((9, 8), np.int8), floats(9), np.array([1])), 1, None),
        ("Linear", (floats(2, 8), np.zeros((1, 64), np.int8), floats(4), floats(4)), 1, {"activation": 0}),
        ("Linear", (floats(2, 12), np.zeros((1, 192), np.int8), floats(4), floats(4)), 1, {"activation": 0}),
        ("Linear", (floats(2, 8), np.zeros((1, 128), np.int8), floats(4), floats(3)), 1, {"activation": 0}),
        ("FloatLinear", (floats(2, 8), floats(1, 64)), 1, {"activation": 0, "columns": 4}),
        ("FloatLinear", (floats(2, 8), floats(1, 128), floats(3)), 1, {"activation": 0, "columns": 4}),
        ("FloatEmbed", (in_float_tiles(floats(9, 8)), TOKENS), 1, {"vocabulary": 9}),
        ("FloatEmbed", (in_float_tiles(floats(9, 8)), TOKENS), 1, {"vocabulary": 17}),
        ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([10])), 3, {"vocabulary": 9}),
        ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([0])), 3, {"vocabulary": 9}),
        ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([1]), floats(8)), 3, {"vocabulary": 9}),
        ("FloatBestOutputs", (floats(2, 8), floats(1, 64), np.array([1])), 3, {"vocabulary": 9}),
        ("BestOutputs", (floats(2, 8), np.zeros((1, 128), np.int8), floats(9), floats(8), np.array([1])), 3, None),
        ("BestOutputs", (floats(2, 8), np.zeros((1, 128), np.int8), floats(9), floats(9), np.array([10])), 3, None),
        ("AddNorm", (floats(2, 8), floats(2, 8), floats(7), floats(8)), 1, {"epsilon": 1e-5}),
        ("AddNorm", (floats(2, 9), floats(2, 9), floats(9), floats(9)), 1, {"epsilon": 1e-5}),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, inputs: tuple[Array, ...], outputs: int, attributes: dict[str, object] | None
) -> None:
    given_attributes = {**(ATTENTION if name.endswith("Attention") else {}), **(attributes or {})}
    with pytest.raises(RuntimeError, match=f"{name}: "):
        run(name, *inputs, outputs=BEST if outputs == 3 else (TensorProto.FLOAT,), **given_attributes)


def test_heads_of_an_odd_size_are_refused_when_the_graph_is_opened() -> None:
    with pytest.raises(Exception, match="multiple of eight"):
        run("SourceAttention", floats(4, 36), ints(0), ints(4), heads=1, head_dim=12, scale=1.0)
