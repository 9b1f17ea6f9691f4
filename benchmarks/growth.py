"""How cost grows, beside the matrix products alone: the limit.

Of a step with batch, beam, past, source and vocabulary; of whole translations with the lengths of source and output.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.bundles import bundle_of
from benchmarks.cells import fixed_sources
from benchmarks.peers import CACHE
from benchmarks.random_checkpoint import OPUS_MT, OPUS_MT_32K, ModelSize, write_random_checkpoint
from benchmarks.step_profile import StepShape, bound, feeds, linear_share, profile_step, step_session
from dragoman.bundle.manifest import read_manifest
from dragoman.search import DecodingOptions
from dragoman.serving.engine import EngineLimits
from dragoman.serving.in_process import open_model
from dragoman.serving.runtime.settings import RuntimeSettings

__all__ = ["measure_growth"]

BASE = {"groups": 8, "width": 1, "cache": 16, "source": 16}
AXES = {
    "groups": (1, 2, 4, 8, 16, 32, 64, 128),
    "width": (1, 2, 4, 8),
    "cache": (8, 16, 32, 64, 128),
    "source": (8, 16, 32, 64, 128),
}
LENGTHS = {"source tokens": (8, 16, 32, 64, 128), "output tokens": (8, 16, 32, 64, 128)}
USUAL_LENGTHS = {"source tokens": 20, "output tokens": 24}
VOCABULARIES = (ModelSize("random-10k", 10_000), ModelSize("random-20k", 20_000), OPUS_MT_32K, OPUS_MT)
REPEATS, TRANSLATION_REPEATS = 12, 3

Shapes = list[tuple[int, int]]
"""Inputs and outputs of linear layers."""


def measure_growth(axes: dict[str, tuple[int, ...]] | None = None) -> dict[str, Any]:
    """Seconds along each axis, fp32 on one thread, with the products of the same shapes alone."""
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
    curves |= {f"translation, {axis}": _lengths(axis, products, bundle) for axis in LENGTHS}
    curves["vocabulary"] = [_vocabulary(size) for size in VOCABULARIES]
    shares = {}
    for groups, width in ((1, 1), (8, 1), (32, 1), (8, 4), (32, 4)):
        operators = profile_step(bundle, StepShape(groups, width, 16, 16))
        shares[f"{groups} sources, beam {width}"] = 1 - linear_share(operators)
    return {"base": BASE, "curves": curves, "outside_linear_layers": shares}


def _vocabulary(size: ModelSize) -> dict[str, float]:
    session, products, bundle = _prepared(size)
    step_s, products_s = _step_s(session, bundle, StepShape(**BASE)), _products_s(products, BASE["groups"])
    return {"value": size.vocabulary, "step_s": step_s, "products_s": products_s}


def _lengths(axis: str, step_products: Any, bundle: Path) -> list[dict[str, float]]:  # noqa: ANN401
    """Seconds for a batch of whole translations, greedy, of exactly so many source and output tokens."""
    batch, points = BASE["groups"], []
    limits = EngineLimits(max_rows=batch, encode_tokens_per_step=batch * max(LENGTHS["source tokens"]))
    model = open_model(bundle, RuntimeSettings(threads=1), limits)
    encoder_products = _products_of(_encoder_shapes(OPUS_MT_32K))
    for value in LENGTHS[axis]:
        lengths = {**USUAL_LENGTHS, axis: value}
        targets, sources_length = lengths["output tokens"], lengths["source tokens"]
        sources = [tuple(source) for source in fixed_sources(batch, sources_length, OPUS_MT_32K.vocabulary)]
        options = DecodingOptions(beam_size=1, min_length=targets, max_length=targets)
        took = _best_s(lambda sources=sources, options=options: model.decode(sources, options), TRANSLATION_REPEATS)
        limit = _products_s(encoder_products, batch * sources_length) + targets * _products_s(step_products, batch)
        points.append({"value": value, "step_s": took, "products_s": limit})
    model.engine.close()
    return points


def _prepared(size: ModelSize) -> tuple[Any, Any, Path]:
    bundle = bundle_of(write_random_checkpoint(size, CACHE / "checkpoints" / size.name), "fp32")
    return step_session(bundle, read_manifest(bundle), _options()), _products_of(_step_shapes(size)), bundle


def _step_s(session: Any, bundle: Path, shape: StepShape) -> float:  # noqa: ANN401 - onnxruntime has no types
    fed = feeds(read_manifest(bundle), shape)
    binding = bound(session, fed)
    return _best_s(lambda: session.run_with_iobinding(binding))


def _step_shapes(size: ModelSize) -> Shapes:
    """A decoder step's."""
    width, inner = size.d_model, size.feed_forward
    layer = [(width, 3 * width), (width, width), (width, width), (width, width), (width, inner), (inner, width)]
    return [*layer * size.decoder_layers, (width, size.vocabulary)]


def _encoder_shapes(size: ModelSize) -> Shapes:
    """The encoder's, and those of the keys and values of every decoder layer."""
    width, inner = size.d_model, size.feed_forward
    layer = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    return [*layer * size.encoder_layers, *[(width, 2 * width)] * size.decoder_layers]


def _products_of(shapes: Shapes) -> Any:  # noqa: ANN401
    """Linear layers as one graph of nothing but MatMul, over random weights."""
    draw, widths = np.random.default_rng(1), sorted({rows for rows, _ in shapes})
    nodes, weights = [], []
    for number, (rows, columns) in enumerate(shapes):
        weights.append(numpy_helper.from_array(draw.standard_normal((rows, columns), np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [f"x{rows}", f"w{number}"], [f"y{number}"]))
    inputs = [helper.make_tensor_value_info(f"x{width}", TensorProto.FLOAT, ["n", width]) for width in widths]
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


def _best_s(call: Any, repeats: int = REPEATS) -> float:  # noqa: ANN401
    """The quickest of some calls in CPU time: on one thread nothing else is included."""
    call()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def _options() -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options
