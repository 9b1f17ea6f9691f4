"""How a step's cost grows with batch, beam, past, source and vocabulary, beside the matrix products alone: the limit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.bundles import bundle_of
from benchmarks.cells import checkpoint_of
from benchmarks.peers import CACHE
from benchmarks.random_checkpoint import OPUS_MT, OPUS_MT_32K, ModelSize
from benchmarks.step_profile import StepShape, bound, feeds, linear_share, profile_step, step_session
from dragoman.bundle.manifest import read_manifest

__all__ = ["measure_growth"]

BASE = {"groups": 8, "width": 1, "cache": 16, "source": 16}
AXES = {
    "groups": (1, 2, 4, 8, 16, 32, 64, 128),
    "width": (1, 2, 4, 8),
    "cache": (8, 16, 32, 64, 128),
    "source": (8, 16, 32, 64, 128),
}
REPEATS = 12


def measure_growth(axes: dict[str, tuple[int, ...]] | None = None) -> dict[str, Any]:
    """Seconds a step along each axis, fp32 on one thread, with the products of the same shapes alone."""
    curves: dict[str, list[dict[str, float]]] = {}
    session, products, bundle = _prepared(OPUS_MT_32K)
    for axis, values in (axes or AXES).items():
        curves[axis] = []
        for value in values:
            shape = {**BASE, axis: value}
            step, limit = (
                _step_s(session, bundle, StepShape(**shape)),
                _products_s(products, shape["groups"] * shape["width"]),
            )
            curves[axis].append({"value": value, "step_s": step, "products_s": limit})
    curves["vocabulary"] = []
    for size in (OPUS_MT_32K, OPUS_MT):
        session, products, bundle = _prepared(size)
        figures = {
            "step_s": _step_s(session, bundle, StepShape(**BASE)),
            "products_s": _products_s(products, BASE["groups"]),
        }
        curves["vocabulary"].append({"value": size.vocabulary, **figures})
    shares = {}
    for groups, width in ((1, 1), (8, 1), (32, 1), (8, 4), (32, 4)):
        operators = profile_step(bundle_of(checkpoint_of(OPUS_MT_32K.name, CACHE), "fp32"), StepShape(groups, width, 16, 16))
        shares[f"{groups} sources, beam {width}"] = 1 - linear_share(operators)
    return {"base": BASE, "curves": curves, "outside_linear_layers": shares}


def _prepared(size: ModelSize) -> tuple[Any, Any, Path]:
    bundle = bundle_of(checkpoint_of(size.name, CACHE), "fp32")
    return step_session(bundle, read_manifest(bundle), _options()), _products(size), bundle


def _step_s(session: Any, bundle: Path, shape: StepShape) -> float:  # noqa: ANN401 - onnxruntime has no types
    fed = feeds(read_manifest(bundle), shape)
    binding = bound(session, fed)
    return _best_s(lambda: session.run_with_iobinding(binding))


def _products(size: ModelSize) -> Any:  # noqa: ANN401
    """All linear layers of a step as one graph of nothing but MatMul, over random weights."""
    width, inner, draw = size.d_model, size.feed_forward, np.random.default_rng(1)
    shapes = [(width, 3 * width), (width, width), (width, width), (width, width), (width, inner), (inner, width)]
    nodes, weights = [], []
    for number, (rows, columns) in enumerate([*shapes * size.decoder_layers, (width, size.vocabulary)]):
        weights.append(numpy_helper.from_array(draw.standard_normal((rows, columns), np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", ["wide" if rows == inner else "x", f"w{number}"], [f"y{number}"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size_])
        for name, size_ in (("x", width), ("wide", inner))
    ]
    outputs = [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, ["n", None]) for number in range(len(nodes))]
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString(), _options())


def _products_s(session: Any, rows: int) -> float:  # noqa: ANN401
    binding = session.io_binding()
    for spec in session.get_inputs():
        binding.bind_cpu_input(spec.name, np.random.default_rng(2).standard_normal((rows, spec.shape[1]), np.float32))
    for spec in session.get_outputs():
        binding.bind_output(spec.name)
    return _best_s(lambda: session.run_with_iobinding(binding))


def _best_s(call: Any) -> float:  # noqa: ANN401
    """The quickest of some calls in CPU time: on one thread nobody else is in it."""
    call()
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def _options() -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options
