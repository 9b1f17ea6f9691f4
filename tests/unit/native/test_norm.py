"""LayerNorm and RMSNorm against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dragoman import native
from one_operator import close, floats, model, opened, run

pytestmark = pytest.mark.skipif(native.ops_library() is None, reason="the operators are not built: no C++ compiler")

WIDTHS = [1, 5, 8, 24, 33, 512]
TWO = (TensorProto.FLOAT, TensorProto.FLOAT)


def normed(
    x: NDArray[np.float32], gamma: NDArray[np.float32], beta: NDArray[np.float32] | None, rms: bool
) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    centred = wide if rms else wide - wide.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma
    return scaled if beta is None else scaled + beta


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("has_beta", [False, True])
def test_norms_are_those_of_numpy(width: int, rows: int, rms: bool, has_beta: bool) -> None:
    x, gamma, beta = 10 * floats(rows, width) + 3, floats(width), floats(width) if has_beta else None
    weights = [gamma] if beta is None else [gamma, beta]
    (alone,) = run("Norm", x, *weights, epsilon=1e-5, rms=int(rms))
    close(alone, normed(x, gamma, beta, rms), 1e-5)
    update = 10 * floats(rows, width)
    (added,) = run("AddNorm", x, update, *weights, epsilon=1e-5, rms=int(rms))
    close(added, normed(x + update, gamma, beta, rms), 1e-5)
    again, total = run("AddNorm", x, update, *weights, epsilon=1e-5, rms=int(rms), outputs=TWO)
    np.testing.assert_array_equal(again, added)
    np.testing.assert_array_equal(total, x + update)


def test_a_chain_of_residuals_may_reuse_memory() -> None:
    """Two pre-norm layers: a residual that is not read again is overwritten by the next one, and nothing else is."""
    x, updates, gamma = floats(4, 24), [floats(4, 24) for _ in range(3)], floats(24)
    inputs = {"x": x, "gamma": gamma, **{f"update{at}": update for at, update in enumerate(updates)}}
    nodes, residual = [], "x"
    for at in range(3):
        outputs = [f"normed{at}", f"residual{at}"]
        nodes.append(
            helper.make_node("AddNorm", [residual, f"update{at}", "gamma"], outputs, domain="dragoman", epsilon=1e-5, rms=1)
        )
        residual = f"residual{at}"
    nodes.append(helper.make_node("Add", ["normed0", "normed1"], ["both"]))
    outputs = {"both": TensorProto.FLOAT, "normed2": TensorProto.FLOAT}
    kept = x.copy()
    both, last = opened(model(nodes, inputs, outputs)).run(list(outputs), inputs)
    np.testing.assert_array_equal(x, kept)
    sums = np.cumsum([x, *updates], axis=0)[1:].astype(np.float32)
    close(both, normed(sums[0], gamma, None, True) + normed(sums[1], gamma, None, True), 1e-5)
    close(last, normed(sums[2], gamma, None, True), 1e-5)
