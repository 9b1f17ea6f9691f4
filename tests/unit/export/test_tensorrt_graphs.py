"""Engines of the graphs that the export really writes, in every precision; tiny models, because only shapes matter."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from dragoman.bundle.manifest import EngineFile, Precision
from dragoman.export.calibration import CalibrationText, calibrate
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.graphs import build_graphs
from dragoman.export.progress import QuietStages
from dragoman.export.tensorrt import BuildOptions, build_engines
from exported_graphs import Exported, export
from forced_steps import random_workload
from random_marian import write_marian

pytest.importorskip("tensorrt_rtx_bindings")

TEXT = CalibrationText(tuple((*range(start, start + 5), 0) for start in range(2, 50, 3)))


@pytest.fixture(scope="module")
def tiny_qdq(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    """Portable int8 graphs, calibrated."""
    directory, checkpoint = tmp_path_factory.mktemp("qdq"), read_checkpoint(tiny_checkpoint)
    calibration = calibrate(checkpoint.model, checkpoint.tokens, TEXT, "int8", lambda _share: None)
    graphs = build_graphs(checkpoint, ("portable",), "int8", directory, lambda _share: None, calibration=calibration)
    return Exported(checkpoint, directory, graphs)


@pytest.fixture(scope="module")
def tiny_short(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    """With a shortlist."""
    directory = tmp_path_factory.mktemp("short") / "graphs"
    return export(directory, tiny_checkpoint, ("portable",), "fp16", shortlist=(0, *range(3, 50, 2)))


def engines_of(exported: Exported, precision: Precision, *capabilities: str) -> dict[str, EngineFile]:
    built = build_engines(
        exported.directory,
        exported.graphs,
        dimensions=exported.checkpoint.dimensions,
        precision=precision,
        options=BuildOptions(compute_capabilities=capabilities or None),
        stages=QuietStages(),
    )
    return {engine.role: engine for engine in built}


@pytest.mark.parametrize(
    ("fixture", "precision", "oldest"),
    [
        ("tiny_fp32", "fp32", "8.0"),
        ("tiny_fp16", "fp16", "7.5"),
        ("tiny_qdq", "int8", "7.5"),
        ("tiny_bf16", "bf16", "8.0"),
    ],
)
def test_all_graphs_become_engines_for_every_gpu_that_can_run_them(
    fixture: str, precision: Precision, oldest: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shared: Exported = request.getfixturevalue(fixture)
    exported = dataclasses.replace(shared, directory=shutil.copytree(shared.directory, tmp_path / "graphs"))
    engines = engines_of(exported, precision)
    assert set(engines) == {"encoder", "decoder", "forced"}
    for engine in engines.values():
        assert (exported.directory / engine.file).stat().st_size > 100_000
        assert engine.compute_capabilities[0] == oldest
        assert engine.precision == precision
    names = [profile.name for profile in engines["decoder"].profiles]
    assert names == ["greedy, cache 32", "beams, cache 32"]  # the model's longest target


def test_graphs_with_a_shortlist_become_engines(tiny_short: Exported) -> None:
    engines = engines_of(tiny_short, "fp16", "7.5")
    assert set(engines) == {"encoder", "decoder", "forced"}
    whole, short = 53, 25  # rows of the projection
    assert tiny_short.graph("decoder", "portable").max_candidates == short < whole


def test_every_linear_layer_of_a_portable_int8_graph_is_quantised(tiny_qdq: Exported) -> None:
    for graph in tiny_qdq.graphs:
        model = onnx.load(tiny_qdq.directory / graph.file, load_external_data=False)
        stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        products = [node for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
        assert not [node.name for node in products if node.input[1] in stored]  # no product reads a plain weight
        assert onnx.TensorProto.INT8 in stored.values()


def test_portable_int8_graphs_compute_and_cache_in_float16_between_their_products(tiny_qdq: Exported) -> None:
    decoder = tiny_qdq.graph("decoder", "portable")
    types = {spec.name: spec.dtype for spec in (*decoder.inputs, *decoder.outputs)}
    assert types["self_key_0"] == "float16"
    assert types["best_log_probs"] == "float32"
    assert decoder.opset == 19


def test_portable_int8_stays_close_to_fp32(tiny_qdq: Exported, tiny_fp32: Exported) -> None:
    work = random_workload(53, 53, start=52)
    exact, quantised = tiny_fp32.stepper("portable").run(work), tiny_qdq.stepper("portable").run(work)
    differences = []
    for one, two in zip(exact, quantised, strict=True):
        ordered = [np.take_along_axis(best.log_probs, np.argsort(best.tokens, -1), -1) for best in (one, two)]
        differences.append(np.abs(ordered[0] - ordered[1]).mean())
    assert 0 < np.mean(differences) < 0.1


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_decoders_with_heads_of_64_build_with_every_profile(tmp_path: Path, precision: Precision) -> None:
    """As OPUS-MT's: TensorRT-RTX crashed on some masks, and on beams whose caches began at 33 tokens."""
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    model = write_marian(tmp_path / "model", d_model=512, max_position_embeddings=256, **heads)
    exported = export(tmp_path / "graphs", model, ("portable",), precision)
    decoder = Exported(exported.checkpoint, exported.directory, (exported.graph("decoder", "portable"),))
    profiles = engines_of(decoder, precision, "8.6")["decoder"].profiles
    assert [profile.name for profile in profiles] == [
        f"{kind}, cache {longest}" for kind in ("greedy", "beams") for longest in (32, 128, 256)
    ]
