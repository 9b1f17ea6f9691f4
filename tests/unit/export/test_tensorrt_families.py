"""Engines of every family in every precision, really built: one layer on each side, because only the operators matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dragoman.bundle.manifest import Precision
from dragoman.errors import EngineBuildError
from dragoman.export.calibration import CalibrationText, calibrate
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.graphs import build_graphs
from dragoman.export.lowering import Calibration
from dragoman.export.progress import QuietStages
from dragoman.export.tensorrt import BuildOptions, ProfileLimits, build_engines
from exported_graphs import Exported
from random_families import FAMILIES

pytest.importorskip("tensorrt_rtx_bindings")

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
ONE_T5 = {"num_layers": 1, "num_decoder_layers": 1}
SHAPES = {
    "NLLB": ONE_LAYER,
    "BART": ONE_LAYER,
    "mBART-50": ONE_LAYER,
    "Pegasus": ONE_LAYER,
    "T5": ONE_T5,
    "T5 1.1": ONE_T5,
    "UMT5": ONE_T5,
}
"""The others have the same layers: M2M100 and SMALL-100 those of NLLB; mT5, Flan, ByT5 and MADLAD-400 those of T5 1.1.
Marian's are built in test_tensorrt_graphs, and fp32 engines of all in test_graphs_families."""

SMALL = ProfileLimits(max_batch=2, max_beams=2, cache_buckets=(8,))


def exported_in(precision: Precision, family: str, directory: Path, kept: tuple[str, ...] = ()) -> Exported:
    checkpoint = read_checkpoint(FAMILIES[family].write(directory / "model", **SHAPES[family]))
    generator = np.random.default_rng(3)
    sources = [(*generator.integers(110, 250, 6).tolist(), checkpoint.tokens.eos) for _ in range(3)]
    calibration = Calibration(kept)
    if precision == "int8":
        text = CalibrationText(tuple(sources))
        calibration = calibrate(checkpoint.model, checkpoint.tokens, text, precision, lambda _share: None)
    graphs = build_graphs(checkpoint, ("portable",), precision, directory, lambda _share: None, calibration=calibration)
    return Exported(checkpoint, directory, graphs)


def engines_build(exported: Exported, precision: Precision, *capabilities: str) -> None:
    engines = build_engines(
        exported.directory,
        exported.graphs,
        dimensions=exported.checkpoint.dimensions,
        precision=precision,
        options=BuildOptions(compute_capabilities=capabilities, limits=SMALL),
        stages=QuietStages(),
    )
    assert {engine.role for engine in engines} == {"encoder", "decoder", "forced"}
    assert all((exported.directory / engine.file).stat().st_size > 10_000 for engine in engines)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("family", SHAPES)
def test_engines_build_for_the_oldest_gpus(tmp_path: Path, family: str, precision: Precision) -> None:
    engines_build(exported_in(precision, family, tmp_path), precision, "7.5")


@pytest.mark.parametrize("family", ["BART", "T5 1.1", "UMT5"])
def test_bfloat16_engines_build(tmp_path: Path, family: str) -> None:
    exported = exported_in("bf16", family, tmp_path)
    decoder = exported.graph("decoder", "portable")
    types = {spec.name: spec.dtype for spec in (*decoder.inputs, *decoder.outputs)}
    assert types["self_key_0"] == types["present_self_key_0"] == "bfloat16"
    assert types["best_log_probs"] == "float32"
    engines_build(exported, "bf16", "8.0")


def test_an_fp16_engine_with_layers_in_fp32_builds_for_all_but_turing(tmp_path: Path) -> None:
    exported = exported_in("fp16", "T5", tmp_path, ("encoder.layers.0.feed_forward", "decoder.layers.0.feed_forward"))
    with pytest.raises(EngineBuildError, match=r"7\.5 can't multiply matrices in fp32"):
        engines_build(exported, "fp16", "7.5")
    engines_build(exported, "fp16", "8.0")
