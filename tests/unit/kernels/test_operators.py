"""Our operators in the real ONNX Runtime, each against a few lines of numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dragoman import kernels
from dragoman.export.tiles import in_tiles

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="the kernels are not built: no C++ compiler")

Array = NDArray[np.generic]
HEADS, HEAD_DIM = 3, 16
WIDTH = HEADS * HEAD_DIM
ATTENTION = {"heads": HEADS, "head_dim": HEAD_DIM, "scale": 0.3}
random = np.random.default_rng(11)


def floats(*shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


def session(
    name: str, inputs: Sequence[Array], outputs: Sequence[int], threads: int, **attributes: object
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
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    options.register_custom_ops_library(str(kernels.library()))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(
    name: str, *inputs: Array, outputs: Sequence[int] = (TensorProto.FLOAT,), threads: int = 1, **attributes: object
) -> list[Array]:
    """The operator on arrays where they lie: it may write to them."""
    opened = session(name, inputs, outputs, threads, **attributes)
    binding = opened.io_binding()
    for at, array in enumerate(inputs):
        binding.bind_input(f"in{at}", "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for at in range(len(outputs)):
        binding.bind_output(f"out{at}")
    opened.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(query: NDArray[np.float32], key: NDArray[np.float32], value: NDArray[np.float32]) -> NDArray[np.float32]:
    """query (width,), key and value (seen, width) -> (width,)."""
    heads = [slice(head * HEAD_DIM, (head + 1) * HEAD_DIM) for head in range(HEADS)]
    return np.concatenate([softmax(key[:, head] @ query[head] * np.float32(0.3)) @ value[:, head] for head in heads])


def close(ours: Array, expected: Array, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(ours, expected, atol=tolerance, rtol=tolerance)


def test_every_token_sees_all_of_its_source_and_nothing_else() -> None:
    packed, lengths = floats(24, 3 * WIDTH), ints(9, 1, 14)
    (seen,) = run("SourceAttention", packed, ints(0, 9, 10), lengths, **ATTENTION)
    query, key, value = np.split(packed, 3, axis=1)
    for start, length in ((0, 9), (9, 1), (10, 14)):
        source = slice(start, start + length)
        close(seen[source], np.stack([attention(one, key[source], value[source]) for one in query[source]]))


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


def test_embeddings_are_rows_times_their_scales() -> None:
    table, scales = random.integers(-127, 128, (21, 24)).astype(np.int8), floats(21)
    tokens = np.array([20, 0, 3, 3, 16])
    (embedded,) = run("Embed", in_tiles(table), scales, tokens)
    np.testing.assert_array_equal(embedded, table[tokens] * scales[tokens, None])


def linear(x: Array, values: Array, scale: Array, *bias: Array, activation: int = 0, threads: int = 1) -> Array:
    offset = values.sum(1).astype(np.float32) * scale
    return run("Linear", x, in_tiles(values), scale, offset, *bias, activation=activation, threads=threads)[0]


def quantised(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """Each row on a grid of 128 steps between its least and its greatest number."""
    least, greatest = x.min(1, keepdims=True).astype(np.float64), x.max(1, keepdims=True).astype(np.float64)
    step = np.where(greatest > least, (greatest - least) / 127, 1)
    return np.floor((x - least) / step + 0.5) * step + least


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 70), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
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


def test_products_in_several_threads_are_the_same() -> None:
    x, values, scale = floats(64, 256), random.integers(-63, 64, (1000, 256)).astype(np.int8), floats(1000)
    np.testing.assert_array_equal(linear(x, values, scale, threads=2), linear(x, values, scale))


BEST = (TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT)


def best(logits: Array, candidates: int, *bias: Array) -> list[Array]:
    return run("BestTokens", logits, np.array([candidates]), *bias, outputs=BEST)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 700), st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.data())
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


def test_logits_that_are_no_numbers_crash_nothing() -> None:
    tokens, _, _ = best(np.full((2, 130), np.nan, np.float32), 5)
    assert tokens.shape == (2, 5)
    assert ((tokens >= 0) & (tokens < 130)).all()


def test_several_threads_compute_the_same() -> None:
    packed, cache = floats(512, 3 * WIDTH), floats(1, 512 * 64, 2 * WIDTH)
    cells = np.arange(512 * 64, dtype=np.int32).reshape(512, 64)
    positions = random.integers(0, 64, 512).astype(np.int32)
    one, two = (
        run("StepAttention", packed, cache.copy(), cells, positions, threads=threads, layer=0, **ATTENTION)[0]
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("threads", [1, 2])
def test_cells_outside_the_cache_are_refused_not_read(threads: int) -> None:
    rows = 512  # enough that two threads share them
    cells = np.arange(rows * 64, dtype=np.int32).reshape(rows, 64)
    cells[300, 5] = rows * 64
    with pytest.raises(RuntimeError, match=r"StepAttention: .*cell"):
        run(
            "StepAttention",
            floats(rows, 3 * WIDTH),
            floats(1, rows * 64, 2 * WIDTH),
            cells,
            np.full(rows, 63, np.int32),
            threads=threads,
            layer=0,
            **ATTENTION,
        )


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
        ("BestTokens", (floats(2, 9), np.array([10])), 3, None),
        ("BestTokens", (floats(2, 9), np.array([0])), 3, None),
        ("AddNorm", (floats(2, 8), floats(2, 8), floats(7), floats(8)), 1, {"epsilon": 1e-5}),
        ("AddNorm", (floats(2, 9), floats(2, 9), floats(9), floats(9)), 1, {"epsilon": 1e-5}),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, inputs: tuple[Array, ...], outputs: int, attributes: dict[str, object] | None
) -> None:
    given_attributes = (
        {} if attributes is None else attributes if name in {"AddNorm", "Linear"} else {**ATTENTION, **attributes}
    )
    with pytest.raises(RuntimeError, match=f"{name}: "):
        run(name, *inputs, outputs=BEST if outputs == 3 else (TensorProto.FLOAT,), **given_attributes)


def test_heads_of_an_odd_size_are_refused_when_the_graph_is_opened() -> None:
    with pytest.raises(Exception, match="multiple of eight"):
        run("SourceAttention", floats(4, 36), ints(0), ints(4), heads=1, head_dim=12, scale=1.0)
