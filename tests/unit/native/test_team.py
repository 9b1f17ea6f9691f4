"""The library's threads: what they compute together is what one computes alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import Array, floats, ints, random, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the kernels are not built: no C++ compiler")

ATTENTION = {"heads": 3, "head_dim": 16, "scale": 0.3}
WIDTH = 48


@pytest.fixture(params=[2, 5])
def team(request: pytest.FixtureRequest) -> Iterator[native.ThreadPool]:
    library = native.ops_library()
    assert library is not None
    yield native.ThreadPool(library, request.param)
    native.ThreadPool(library, 1)


def product(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    values = draw.integers(-63, 64, (1000, 256)).astype(np.int8)
    x, scale = draw.normal(0, 1, (64, 256)).astype(np.float32), draw.normal(0, 1, 1000).astype(np.float32)
    return run("Linear", x, in_tiles(values), scale, values.sum(1).astype(np.float32) * scale, activation=0)[0]


def float_product(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    x, weights = (draw.normal(0, 1, (count, 256)).astype(np.float32) for count in (64, 1000))
    return run("FloatLinear", x, in_float_tiles(weights), activation=1, columns=1000)[0]


def past(seed: int) -> Array:
    draw = np.random.default_rng(seed)
    packed, cache = (draw.normal(0, 1, size).astype(np.float32) for size in ((512, 3 * WIDTH), (1, 512 * 64, 2 * WIDTH)))
    cells = np.arange(512 * 64, dtype=np.int32).reshape(512, 64)
    positions = draw.integers(0, 64, 512).astype(np.int32)
    return run("StepAttention", packed, cache, cells, positions, layer=0, **ATTENTION)[0]


@pytest.mark.parametrize("compute", [product, float_product, past])
def test_a_lone_caller_is_helped_and_hears_the_same(team: native.ThreadPool, compute: object) -> None:
    with team:
        helped = [compute(seed) for seed in range(5)]  # type: ignore[operator]
    assert native.ops_library() is not None
    native.ThreadPool(native.OPS_LIBRARY, 1)
    for seed, answer in enumerate(helped):
        np.testing.assert_array_equal(compute(seed), answer)  # type: ignore[operator]


def test_callers_do_not_disturb_each_other(team: native.ThreadPool) -> None:
    """Turns begin and end all the time, so that helpers come and go."""
    expected = [float_product(seed) for seed in range(4)]

    def ask(number: int) -> bool:
        with team:
            return bool((float_product(number % 4) == expected[number % 4]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(80)))


def test_what_goes_wrong_in_a_helper_is_told_to_the_caller(team: native.ThreadPool) -> None:
    rows = 512
    for wrong in (0, 300, 511):
        cells = np.arange(rows * 64, dtype=np.int32).reshape(rows, 64)
        cells[wrong, 5] = rows * 64
        inputs = (floats(rows, 3 * WIDTH), floats(1, rows * 64, 2 * WIDTH), cells, np.full(rows, 63, np.int32))
        with team, pytest.raises(RuntimeError, match=r"StepAttention: .*cell"):
            run("StepAttention", *inputs, layer=0, **ATTENTION)


def test_a_cell_outside_the_cache_is_refused_without_helpers_too() -> None:
    cells = np.full((1, 4), 99, np.int32)
    with pytest.raises(RuntimeError, match=r"StepAttention: .*cell"):
        run("StepAttention", floats(1, 3 * WIDTH), floats(1, 8, 2 * WIDTH), cells, ints(0), layer=0, **ATTENTION)


def test_a_team_of_one_has_no_helpers() -> None:
    team, tokens = native.ThreadPool(native.OPS_LIBRARY, 1), random.integers(0, 9, 3)
    with team:
        (rows,) = run("FloatEmbed", in_float_tiles(np.eye(9, 16, dtype=np.float32)), tokens, vocabulary=9)
    assert rows.argmax(1).tolist() == tokens.tolist()
