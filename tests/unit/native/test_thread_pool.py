"""The library's threads: what they compute together is what one computes alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import Array, floats, ints, random, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")

ATTENTION = {"heads": 3, "head_dim": 16, "scale": 0.3}
WIDTH = 48


@pytest.fixture(params=[2, 5])
def pool(request: pytest.FixtureRequest) -> Iterator[native.ThreadPool]:
    library = native.ops_library()
    assert library is not None
    yield native.ThreadPool(library, request.param)
    native.ThreadPool(library, 1)


def product(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    values = draw.integers(-127, 128, (1000, 256)).astype(np.int8)
    x, scale = draw.normal(0, 1, (64, 256)).astype(np.float32), draw.normal(0, 1, 1000).astype(np.float32)
    return run("Linear", x, in_tiles(values), scale, values.sum(1).astype(np.float32) * scale, activation=0)[0]


def float_product(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    x, weights = (draw.normal(0, 1, (count, 256)).astype(np.float32) for count in (64, 1000))
    return run("FloatLinear", x, in_float_tiles(weights), activation=1, columns=1000)[0]


def past(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    packed, cache = (draw.normal(0, 1, size).astype(np.float32) for size in ((512, 3 * WIDTH), (1, 512 * 64, 2 * WIDTH)))
    slots = np.arange(512 * 64, dtype=np.int32).reshape(512, 64)
    positions = draw.integers(0, 64, 512).astype(np.int32)
    return run("StepAttention", packed, cache, slots, positions, layer=0, **ATTENTION)[0]


@pytest.mark.parametrize("compute", [product, float_product, past])
def test_helpers_do_not_change_the_result(pool: native.ThreadPool, compute: object) -> None:
    with pool:
        helped = [compute(seed) for seed in range(5)]  # type: ignore[operator]
    assert native.ops_library() is not None
    native.ThreadPool(native.OPS_LIBRARY, 1)
    for seed, answer in enumerate(helped):
        np.testing.assert_array_equal(compute(seed), answer)  # type: ignore[operator]


def test_callers_do_not_disturb_each_other(pool: native.ThreadPool) -> None:
    """They enter and leave all the time, so that helpers come and go."""
    expected = [float_product(seed) for seed in range(4)]

    def ask(number: int) -> bool:
        with pool:
            return bool((float_product(number % 4) == expected[number % 4]).all())

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(ask, range(80)))


def test_an_error_in_a_helper_reaches_the_caller(pool: native.ThreadPool) -> None:
    rows = 512
    for wrong in (0, 300, 511):
        slots = np.arange(rows * 64, dtype=np.int32).reshape(rows, 64)
        slots[wrong, 5] = rows * 64
        inputs = (floats(rows, 3 * WIDTH), floats(1, rows * 64, 2 * WIDTH), slots, np.full(rows, 63, np.int32))
        with pool, pytest.raises(RuntimeError, match=r"StepAttention: .*slot"):
            run("StepAttention", *inputs, layer=0, **ATTENTION)


def test_a_slot_outside_the_cache_is_refused_without_helpers_too() -> None:
    slots = np.full((1, 4), 99, np.int32)
    with pytest.raises(RuntimeError, match=r"StepAttention: .*slot"):
        run("StepAttention", floats(1, 3 * WIDTH), floats(1, 8, 2 * WIDTH), slots, ints(0), layer=0, **ATTENTION)


def test_a_pool_of_one_thread_has_no_helpers() -> None:
    pool, tokens = native.ThreadPool(native.OPS_LIBRARY, 1), random.integers(0, 9, 3)
    with pool:
        (rows,) = run("FloatEmbed", in_float_tiles(np.eye(9, 16, dtype=np.float32)), tokens, vocabulary=9)
    assert rows.argmax(1).tolist() == tokens.tolist()
