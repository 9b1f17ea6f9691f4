"""Attention operators against a few lines of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dragoman import native
from one_operator import close, floats, ints, model, opened, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")

HEADS, HEAD_DIM = 3, 16
WIDTH = HEADS * HEAD_DIM
ATTENTION = {"heads": HEADS, "head_dim": HEAD_DIM, "scale": 0.3}
SHAPES = [(1, 8), (8, 8), (5, 24), (8, 32), (8, 64), (12, 64), (16, 64), (9, 40), (1, 1), (3, 5), (7, 12), (6, 65)]

Floats = NDArray[np.float32]


def softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(query: Floats, key: Floats, value: Floats, heads: int = HEADS, bias: Floats | None = None) -> Floats:
    """query (width,), key and value (keys, width), bias (keys, heads) -> (width,)."""
    size = len(query) // heads
    results = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = key[:, part] @ query[part] * np.float32(0.3)
        results.append(softmax(scores if bias is None else scores + bias[:, head]) @ value[:, part])
    return np.concatenate(results)


def test_every_token_sees_all_of_its_source_and_nothing_else() -> None:
    packed, lengths = floats(24, 3 * WIDTH), ints(9, 1, 14)
    (seen,) = run("SourceAttention", packed, ints(0, 9, 10), lengths, **ATTENTION)
    query, key, value = np.split(packed, 3, axis=1)
    for start, length in ((0, 9), (9, 1), (10, 14)):
        source = slice(start, start + length)
        close(seen[source], np.stack([attention(one, key[source], value[source]) for one in query[source]]))


@pytest.mark.parametrize(("heads", "head_dim"), SHAPES)
@pytest.mark.parametrize("length", [1, 7, 33])
@pytest.mark.parametrize("reach", [None, 0, 4, 40])
def test_heads_of_any_number_and_size_with_and_without_relative_bias(
    heads: int, head_dim: int, length: int, reach: int | None
) -> None:
    """A bias table that does not reach far enough goes on with its ends."""
    packed = floats(length, 3 * heads * head_dim)
    table = None if reach is None else floats(2 * reach + 1, heads)
    inputs = [] if table is None else [table]
    (seen,) = run("SourceAttention", packed, ints(0), ints(length), *inputs, heads=heads, head_dim=head_dim, scale=0.3)
    query, key, value = np.split(packed, 3, axis=1)
    for at in range(length):
        distances = np.arange(length) - at
        bias = None if table is None or reach is None else table[np.clip(distances, -reach, reach) + reach]
        close(seen[at], attention(query[at], key, value, heads, bias), 1e-5)


@pytest.mark.parametrize("reach", [None, 0, 2, 9])
def test_a_step_writes_its_key_and_value_and_sees_the_slots_it_names(reach: int | None) -> None:
    packed, cache = floats(3, 3 * WIDTH), floats(2, 12, 2 * WIDTH)
    before = cache.copy()
    slots = np.array([[5, 1, 8, 0], [2, 7, 3, 4], [9, 0, 0, 0]], np.int32)
    positions = ints(2, 3, 0)
    table = None if reach is None else floats(reach + 1, HEADS)
    (seen,) = run(
        "StepAttention", packed, cache, slots, positions, *([] if table is None else [table]), layer=1, **ATTENTION
    )
    written = [slots[row, positions[row]] for row in range(3)]
    np.testing.assert_array_equal(cache[1, written], packed[:, WIDTH:])
    untouched = np.setdiff1d(np.arange(12), written)
    np.testing.assert_array_equal(cache[1, untouched], before[1, untouched])
    np.testing.assert_array_equal(cache[0], before[0])
    for row in range(3):
        past = cache[1, slots[row, : positions[row] + 1]]
        bias = None
        if table is not None and reach is not None:
            bias = table[np.maximum(np.arange(len(past)) - positions[row] + reach, 0)]
        close(seen[row], attention(packed[row, :WIDTH], past[:, :WIDTH], past[:, WIDTH:], bias=bias))


@pytest.mark.parametrize("beams", [1, 3, 4, 6])
def test_beams_see_the_source_of_their_group(beams: int) -> None:
    query, cache = floats(2 * beams, WIDTH), floats(3, 20, 2 * WIDTH)
    (seen,) = run("CrossAttention", query, cache, ints(3, 10), ints(5, 9), layer=2, **ATTENTION)
    for row in range(2 * beams):
        source = cache[2, 3:8] if row < beams else cache[2, 10:19]
        close(seen[row], attention(query[row], source[:, :WIDTH], source[:, WIDTH:]))


def step_node(layer: int, packed: str, cache: str, outputs: list[str]) -> object:
    inputs = [packed, cache, "slots", "positions"]
    return helper.make_node("StepAttention", inputs, outputs, domain="dragoman", layer=layer, **ATTENTION)


def test_the_cache_that_a_step_returns_is_the_cache_it_was_given() -> None:
    """Declared as an alias: two layers in a chain write to the caller's memory, and nothing is copied."""
    packed, cache, slots = floats(2, 3 * WIDTH), floats(2, 8, 2 * WIDTH), np.array([[3], [6]], np.int32)
    inputs = {"packed": packed, "cache": cache, "slots": slots, "positions": ints(0, 0)}
    nodes = [
        step_node(0, "packed", "cache", ["first", "cache_1"]),
        step_node(1, "packed", "cache_1", ["second", "cache_2"]),
    ]
    session = opened(model(nodes, inputs, {"first": TensorProto.FLOAT, "second": TensorProto.FLOAT}))
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    binding.bind_output("first")
    binding.bind_output("second")
    session.run_with_iobinding(binding)
    for layer in range(2):
        np.testing.assert_array_equal(cache[layer, [3, 6]], packed[:, WIDTH:])


def test_a_cache_that_would_be_copied_is_refused() -> None:
    inputs = {
        "packed": floats(1, 3 * WIDTH),
        "cache": floats(1, 8, 2 * WIDTH),
        "slots": np.array([[3]], np.int32),
        "positions": ints(0),
    }
    made = model([step_node(0, "packed", "cache", ["seen", "after"])], inputs, {"seen": TensorProto.FLOAT})
    made.graph.output.append(helper.make_tensor_value_info("after", TensorProto.FLOAT, [None, None, None]))
    with pytest.raises(Exception, match=r"StepAttention: the cache must not be a graph's output"):
        opened(made).run(None, inputs)
