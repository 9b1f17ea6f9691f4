"""bfloat16 graphs, whose every result is rounded, on the CPU and on the double of a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from dragoman.bundle.manifest import Precision, Target
from dragoman.errors import BundleError, UsageError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.lowering import Calibration, PortableLowering, trace
from dragoman.export.pipeline import ExportOptions
from dragoman.export.verification.exported import GraphModel
from dragoman.export.verification.sessions import opened
from dragoman.export.weights import in_memory
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, Sequence
from dragoman.serving.in_process import model_facts
from dragoman.serving.runtime.opening import open_runtime
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from exported_graphs import Exported
from gpu_bundles import with_engines
from gpu_double import CudaDouble, TensorRtDouble, importing_doubles
from random_marian import marian_config, marian_weights, write_marian

SOURCES = [(5, 9, 11, 0), (6, 20, 3, 40, 41, 2, 0), (30, 0)]


def model_of(exported: Exported) -> GraphModel:
    read = exported.checkpoint
    graphs = {role: exported.graph(role, "portable") for role in ("encoder", "decoder", "forced")}
    return GraphModel(exported.directory, graphs, read.tokens, read.dimensions)  # type: ignore[arg-type]


def encoded(directory: Path) -> np.ndarray:
    feed = {"source_ids": np.array([SOURCES[1]]), "source_lengths": np.array([7], np.int32)}
    (keys,) = opened(directory / "encoder.portable.onnx").run(["cross_key_0"], feed)
    return keys


def test_results_are_rounded_to_bfloat16(tiny_bf16: Exported, tiny_fp32: Exported) -> None:
    narrow, wide = encoded(tiny_bf16.directory), encoded(tiny_fp32.directory)
    np.testing.assert_array_equal(narrow, narrow.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert not np.array_equal(narrow, wide)
    np.testing.assert_allclose(narrow, wide, atol=0.1)


def test_caches_are_bfloat16_and_what_the_search_reads_is_float32(tiny_bf16: Exported) -> None:
    decoder = tiny_bf16.graph("decoder", "portable")
    types = {spec.name: spec.dtype for spec in (*decoder.inputs, *decoder.outputs)}
    assert types["cross_key_0"] == types["self_value_0"] == types["present_self_key_0"] == "bfloat16"
    assert types["best_log_probs"] == types["best_logits"] == types["scored_log_probs"] == "float32"


def test_given_targets_score_nearly_as_in_fp32(tiny_bf16: Exported, tiny_fp32: Exported) -> None:
    source, target = SOURCES[1], (7, 30, 8, 12, 0)
    narrow, wide = (model_of(exported).scored(source, target) for exported in (tiny_bf16, tiny_fp32))
    assert 0 < np.abs(narrow - wide).max() < 0.2


def test_what_overflows_in_float16_does_not_in_bfloat16(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    weights["model.encoder.layers.0.fc1.weight"] *= 1e6
    weights["model.encoder.layers.0.fc1.bias"] *= 1e6
    weights["model.encoder.layers.0.fc2.weight"] *= 1e-6
    source = read_checkpoint(write_marian(tmp_path / "model", weights=weights)).source_of_weights
    lowering, finite = PortableLowering(8), []
    for precision in get_args(Precision)[1:3]:
        traced = trace(lowering.prepared(source, precision, Calibration(), in_memory), "encoder", lowering)
        ir.save(traced, tmp_path / "encoder.portable.onnx")
        finite.append(bool(np.isfinite(encoded(tmp_path)).all()))
    assert finite == [False, True]


def test_it_needs_no_calibration() -> None:
    lowering = PortableLowering()
    assert lowering.needs_calibration("fp16")
    assert not lowering.needs_calibration("bf16")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_engines_on_a_gpu_give_the_tokens_of_the_verification(tiny_bf16: Exported, tmp_path: Path, beam_size: int) -> None:
    bundle = tmp_path / "bundle"
    manifest = with_engines(tiny_bf16, bundle, "bf16")
    cuda = CudaDouble()
    trt = TensorRtDouble(cuda)
    trt.know(bundle, manifest)
    runtime = TensorRtRuntime(bundle, manifest, importing=importing_doubles(cuda, trt))
    limits, facts = EngineLimits(max_rows=16, max_beam_size=4), model_facts(manifest)
    wider = dataclasses.replace(runtime.layout, dtype="float32")
    assert 2 * runtime.layout.slot_bytes == wider.slot_bytes
    runtime.contract(limits, facts)
    engine = Engine(runtime, facts, limits)
    options = DecodingOptions(beam_size=beam_size, max_length=20)
    sequences = [Sequence(source, options) for source in SOURCES]
    for sequence in sequences:
        engine.submit(sequence)
    while engine.busy:
        engine.wait()
        engine.step()
    assert [sequence.error for sequence in sequences] == [None] * 3
    expected = [answer.tokens for answer in model_of(tiny_bf16).generate(SOURCES, options)]
    assert [sequence.hypotheses[0].tokens for sequence in sequences] == expected


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_other_devices_refuse_it(tiny_bf16: Exported, tmp_path: Path, device: str) -> None:
    manifest = with_engines(tiny_bf16, tmp_path / "bundle", "bf16")
    with pytest.raises(BundleError, match="in bf16, which only --device tensorrt runs"):
        open_runtime(tmp_path / "bundle", manifest, RuntimeSettings(device=device))  # type: ignore[arg-type]


@pytest.mark.parametrize("targets", [("cpu",), ("cuda",), ("cpu", "tensorrt")])
def test_other_targets_refuse_it_before_any_work(tmp_path: Path, targets: tuple[Target, ...]) -> None:
    with pytest.raises(UsageError, match="--precision bf16 is for TensorRT"):
        ExportOptions(tmp_path, tmp_path / "bundle", precision="bf16", targets=targets)
