"""What a wrong graph or a wrong input is answered with: an error that names the operator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from dragoman import native
from dragoman.export.lowering.native.tiles import in_float_tiles, in_tiles
from one_operator import BEST, Array, floats, ints, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")

WIDTH = 48
ATTENTION = {"heads": 3, "head_dim": 16, "scale": 0.3}
TOKENS = np.array([0, 9])
NO_TILES = np.zeros((1, 128), np.int8)
SLOTS = np.zeros((2, 4), np.int32)

Case = tuple[str, tuple[Array, ...], dict[str, object]]


def step(positions: Array, cache: Array, layer: int = 0, *bias: Array) -> Case:
    return "StepAttention", (floats(2, 3 * WIDTH), cache, SLOTS, positions, *bias), {"layer": layer, **ATTENTION}


def cross(rows: int, starts: Array, lengths: Array, layer: int = 0) -> Case:
    return "CrossAttention", (floats(rows, WIDTH), floats(1, 8, 2 * WIDTH), starts, lengths), {"layer": layer, **ATTENTION}


def source(starts: Array, lengths: Array, *bias: Array, **attributes: object) -> Case:
    return "SourceAttention", (floats(4, 3 * WIDTH), starts, lengths, *bias), {**ATTENTION, **attributes}


def target(positions: Array, layer: int = 0) -> Case:
    return "TargetAttention", (floats(2, 3 * WIDTH), floats(1, 8, 2 * WIDTH), positions), {"layer": layer, **ATTENTION}


def aligned(*inputs: Array) -> Case:
    return "AlignedAttention", inputs, dict(ATTENTION)


CACHE = floats(1, 8, 2 * WIDTH)
CASES: list[Case] = [
    target(ints(0, 2)),
    target(ints(1, 0)),
    target(ints(-1, 0)),
    target(ints(7, 8)),
    target(ints(0)),
    target(ints(0, 1), 1),
    aligned(floats(2, WIDTH), floats(0, 2 * WIDTH)),
    aligned(floats(2, WIDTH), floats(3, WIDTH)),
    aligned(floats(2, 2 * WIDTH), floats(3, 2 * WIDTH)),
    step(ints(0, 4), CACHE),
    step(ints(0, -1), CACHE),
    step(ints(0, 0), CACHE, 1),
    step(ints(0, 0), CACHE, -1),
    step(ints(0, 0), CACHE, -(2**62)),
    step(ints(0, 0), CACHE, 2**62),
    step(ints(0, 0), floats(1, 8, WIDTH)),
    step(ints(0, 0), floats(0, 8, 2 * WIDTH)),
    step(ints(0, 0), floats(1, 0, 2 * WIDTH)),
    step(ints(0), CACHE),
    step(ints(0, 0), CACHE, 0, floats(4, 2)),
    step(ints(0, 0), CACHE, 0, floats(0, 3)),
    cross(2, ints(0, 6), ints(3, 3)),
    cross(3, ints(0, 6), ints(3, 2)),
    cross(2, ints(0, -1), ints(3, 2)),
    cross(2, ints(0, 2**31 - 1), ints(3, 2**31 - 1)),
    cross(2, ints(0, 1), ints(3, 0)),
    cross(2, ints(0, 1), ints(3)),
    cross(2, ints(0, 1), ints(3, 3), -1),
    ("CrossAttention", (floats(0, WIDTH), CACHE, np.zeros(0, np.int32), np.zeros(0, np.int32)), {"layer": 0, **ATTENTION}),
    source(ints(0, 2), ints(2, 3)),
    source(ints(0, 2), ints(2, 0)),
    source(ints(0, 1), ints(2, 2)),
    source(ints(0), ints(3)),
    source(ints(0), ints(-4)),
    source(ints(0), ints(4), floats(4, 3)),
    source(ints(0), ints(4), floats(5, 2)),
    source(ints(0), ints(4), heads=0),
    source(ints(0), ints(4), heads=-3),
    source(ints(0), ints(4), heads=2**40),
    source(ints(0), ints(4), head_dim=2**62),
    source(ints(0), ints(4), head_dim=-16),
    source(ints(0), ints(4), scale=float("nan")),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), TOKENS), {}),
    ("Embed", (np.zeros((9, 8), np.int8), floats(9), np.array([1])), {}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([1])), {"width": 9}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([-1])), {}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([1]), ints(3), floats(3, 8)), {}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([1]), ints(0), floats(3, 8)), {"offset": 3}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([1]), ints(-1), floats(3, 8)), {}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([1]), ints(0), floats(3, 7)), {}),
    ("Embed", (in_tiles(np.zeros((9, 8), np.int8)), floats(9), np.array([1]), ints(0)), {}),
    ("FloatEmbed", (in_float_tiles(floats(9, 8)), TOKENS), {"vocabulary": 9}),
    ("FloatEmbed", (in_float_tiles(floats(9, 8)), TOKENS), {"vocabulary": 17}),
    ("FloatEmbed", (in_float_tiles(floats(9, 8)), TOKENS), {"vocabulary": -9}),
    ("FloatEmbed", (in_float_tiles(floats(9, 8)), TOKENS), {"vocabulary": 2**62}),
    ("Linear", (floats(2, 8), np.zeros((1, 64), np.int8), floats(4), floats(4)), {"activation": 0}),
    ("Linear", (floats(2, 12), np.zeros((1, 192), np.int8), floats(4), floats(4)), {"activation": 0}),
    ("Linear", (floats(2, 8), NO_TILES, floats(4), floats(3)), {"activation": 0}),
    ("Linear", (floats(2, 8), NO_TILES, floats(4), floats(4), floats(5)), {"activation": 0}),
    ("Linear", (floats(2, 8), NO_TILES, floats(4), floats(4)), {"activation": 6}),
    ("Linear", (floats(2, 8), NO_TILES, floats(4), floats(4)), {"activation": -1}),
    ("Linear", (floats(2, 0), np.zeros((1, 0), np.int8), floats(4), floats(4)), {}),
    ("Linear", (floats(2, 8), np.zeros((0, 128), np.int8), floats(0), floats(0)), {}),
    ("GatedLinear", (floats(2, 8), NO_TILES, floats(4), floats(4), NO_TILES, floats(5), floats(5)), {}),
    ("FloatLinear", (floats(2, 8), floats(1, 64)), {"activation": 0, "columns": 4}),
    ("FloatLinear", (floats(2, 8), floats(1, 128), floats(3)), {"activation": 0, "columns": 4}),
    ("FloatLinear", (floats(2, 8), floats(1, 128)), {"columns": 0}),
    ("FloatLinear", (floats(2, 8), floats(1, 128)), {"columns": -4}),
    ("FloatLinear", (floats(2, 8), floats(1, 128)), {"columns": 2**63 - 1}),
    ("FloatGatedLinear", (floats(2, 8), floats(1, 128), floats(2, 128)), {"columns": 4}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([10])), {"vocabulary": 9}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([0])), {"vocabulary": 9}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([-1])), {"vocabulary": 9}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([], np.int64)), {"vocabulary": 9}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([1]), floats(8)), {"vocabulary": 9}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 64), np.array([1])), {"vocabulary": 9}),
    ("FloatBestOutputs", (floats(2, 8), floats(1, 128), np.array([1])), {"vocabulary": 9, "scale": float("inf")}),
    ("BestOutputs", (floats(2, 8), NO_TILES, floats(9), floats(8), np.array([1])), {}),
    ("BestOutputs", (floats(2, 8), NO_TILES, floats(9), floats(9), np.array([10])), {}),
    ("Norm", (floats(2, 8), floats(7)), {"epsilon": 1e-5}),
    ("Norm", (floats(2, 8), floats(8), floats(7)), {"epsilon": 1e-5}),
    ("Norm", (floats(2, 0), floats(0)), {"epsilon": 1e-5}),
    ("Norm", (floats(2, 8), floats(8)), {"epsilon": -1.0}),
    ("Norm", (floats(2, 8), floats(8)), {"epsilon": 1e-5, "rms": 2}),
    ("AddNorm", (floats(2, 8), floats(2, 8), floats(7), floats(8)), {"epsilon": 1e-5}),
    ("AddNorm", (floats(2, 8), floats(3, 8), floats(8), floats(8)), {"epsilon": 1e-5}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), CASES)
def test_what_does_not_fit_is_refused(name: str, inputs: tuple[Array, ...], attributes: dict[str, object]) -> None:
    with pytest.raises(Exception, match=f"{name}: "):
        run(name, *inputs, outputs=BEST if name.endswith("BestOutputs") else (TensorProto.FLOAT,), **attributes)


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(Exception, match=r"SourceAttention: .*head_dim"):
        run("SourceAttention", floats(4, 3 * WIDTH), ints(0), ints(4), heads=3, scale=1.0)


def test_wrong_ranks_are_refused() -> None:
    with pytest.raises(Exception, match="Norm: input 0 has 3 dimensions instead of 2"):
        run("Norm", floats(2, 3, 8), floats(8), epsilon=1e-5)


@pytest.mark.parametrize("rows", [0])
def test_no_rows_are_no_work(rows: int) -> None:
    assert run("Norm", floats(rows, 8), floats(8), epsilon=1e-5)[0].shape == (0, 8)
    assert run("FloatLinear", floats(rows, 8), floats(1, 128), columns=4)[0].shape == (0, 4)
    assert run("Linear", floats(rows, 8), NO_TILES, floats(4), floats(4))[0].shape == (0, 4)
    found = run("FloatBestOutputs", floats(rows, 8), floats(1, 128), np.array([2]), outputs=BEST, vocabulary=9)
    assert [array.shape for array in found] == [(0, 2)] * 3
