"""The graphs of every family compute what the torch module computes, which is what Hugging Face computes."""

from __future__ import annotations

import dataclasses
import importlib.util
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman import native
from dragoman.bundle.manifest import Lowering, Precision
from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.export.progress import QuietStages
from dragoman.export.tensorrt import BuildOptions, ProfileLimits, build_engines
from dragoman.export.verification import exported as exported_module
from dragoman.export.verification import forced as forced_module
from dragoman.export.verification import sessions
from dragoman.export.verification.eager import EagerModel
from dragoman.export.verification.exported import GraphModel, stepper_of
from dragoman.export.verification.native_stepper import NativeStepper
from dragoman.export.verification.original import HuggingFaceModel
from dragoman.serving.engine import Engine, EngineLimits
from dragoman.serving.in_process import LoadedModel, model_facts
from dragoman.serving.runtime.tensorrt import TensorRtRuntime
from exported_graphs import Exported, export
from gpu_bundles import with_engines
from gpu_double import CudaDouble, TensorRtDouble, importing_doubles
from random_families import FAMILIES
from random_marian import marian_config, marian_weights, write_marian

needs_operators = pytest.mark.skipif(native.ops_library() is None, reason="the custom operators are not built")

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
ONE_T5 = {"num_layers": 1, "num_decoder_layers": 1}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("NLLB", ONE_LAYER),
    ("BART", {**ONE_LAYER, "d_model": 30, "encoder_ffn_dim": 17}),
    ("mBART-50", ONE_LAYER),
    ("T5", ONE_T5),
    ("UMT5", {"num_layers": 2, "num_decoder_layers": 2, "d_kv": 7}),
    ("M2M100", {**ONE_LAYER, "activation_function": "gelu", "decoder_attention_heads": 2, "scale_embedding": False}),
    ("Pegasus", {**ONE_LAYER, "d_model": 30, "decoder_ffn_dim": 19}),
    ("T5 1.1", {**ONE_T5, "num_heads": 5, "d_kv": 7}),
    ("ByT5", {**ONE_T5, "feed_forward_proj": "gated-silu", "eos_token_id": [1, 130, 210]}),
]
BUILT = ("NLLB", "BART", "mBART-50", "T5", "UMT5")
"""TensorRT engines are built from these graphs, too; the others have the same layers."""


@pytest.mark.parametrize("lowering", [pytest.param("native", marks=needs_operators), "portable"])
@pytest.mark.parametrize(("family", "shape"), SHAPES, ids=str)
def test_graphs_give_the_answers_of_hugging_face(
    tmp_path: Path, family: str, shape: dict[str, Any], lowering: Lowering
) -> None:
    directory = FAMILIES[family].write(tmp_path / "model", **shape)
    exported = export(tmp_path / "graphs", directory, (lowering,))
    checkpoint = exported.checkpoint
    graphs = GraphModel(
        exported.directory,
        {role: exported.graph(role, lowering) for role in ("encoder", "decoder", "forced")},
        checkpoint.tokens,
        checkpoint.dimensions,
    )
    if lowering == "portable" and family in BUILT:
        engines_build(exported)
    on_gpu = runtime_on_the_double(exported, tmp_path / "bundle") if lowering == "portable" else None
    original = HuggingFaceModel(directory, checkpoint.tokens)
    generator = np.random.default_rng(5)
    batch = [[*generator.integers(110, 250, length).tolist(), checkpoint.tokens.eos] for length in (3, 7, 12, 25)]
    for beams in (1, 4):
        options = dataclasses.replace(checkpoint.generation, beam_size=beams, max_length=24)
        expected = original.generate(batch, options)
        assert [answer.tokens for answer in graphs.generate(batch, options)] == expected
        assert [graphs.generate([source], options)[0].tokens for source in batch] == expected
        if on_gpu is not None:
            assert [answer[0].tokens for answer in on_gpu.decode([tuple(source) for source in batch], options)] == expected
        for source, target in zip(batch, expected, strict=True):
            log_probs = original.log_probs(source, target)[np.arange(len(target)), list(target)]
            np.testing.assert_allclose(graphs.scored(source, target), log_probs, atol=1e-4)


@needs_operators
def test_the_steps_and_whole_targets_are_never_open_together(tiny_fp32: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    alive = weakref.WeakSet[Any]()

    def opened(path: Path) -> Any:
        session = sessions.opened(path)
        alive.add(session)
        return session

    for module in (exported_module, forced_module):
        monkeypatch.setattr(module, "opened", opened)
    checkpoint = tiny_fp32.checkpoint
    roles = {role: tiny_fp32.graph(role, "native") for role in ("encoder", "decoder", "forced")}
    graphs = GraphModel(tiny_fp32.directory, roles, checkpoint.tokens, checkpoint.dimensions)
    options = dataclasses.replace(checkpoint.generation, max_length=4, beam_size=1)
    for _ in range(2):
        answer = graphs.generate([[5, 6, checkpoint.tokens.eos]], options)[0].tokens
        assert len(alive) == 2
        graphs.scored([5, 6, checkpoint.tokens.eos], answer)
        assert len(alive) == 2  # each holds the weights that it reads


@needs_operators
def test_slots_of_rows_that_have_left_are_given_up(tiny_fp32: Exported) -> None:
    roles = [tiny_fp32.graph(role, "native") for role in ("encoder", "decoder")]
    stepper = stepper_of(tiny_fp32.directory, *roles)
    assert isinstance(stepper, NativeStepper)
    every, alone = np.arange(3), np.array([1])
    stepper.start([[5, 6, 0], [7, 8, 0], [9, 0]])
    for position in range(3):
        stepper.step(np.full((3, 1), 5), np.full(3, position), every, np.zeros((3, 1), np.int64), 1)
    assert stepper.slots == 9
    stepper.step(np.full((1, 1), 5), np.array([3]), alone, np.zeros((1, 1), np.int64), 1)
    assert stepper.slots == 4


@needs_operators
@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("NLLB", {**ONE_LAYER, "d_model": 30, "encoder_ffn_dim": 17}),
        ("BART", {**ONE_LAYER, "scale_embedding": True}),
        ("T5 1.1", {**ONE_T5, "num_heads": 5, "d_kv": 7}),
    ],
    ids=str,
)
def test_in_lower_precision_an_answer_is_the_same_alone_and_in_a_batch(
    tmp_path: Path, family: str, shape: dict[str, Any], precision: Precision
) -> None:
    """One of each kind of layers: pre-norm, post-norm, and RMSNorm with relative positions and gates; odd sizes."""
    directory = FAMILIES[family].write(tmp_path / "model", **shape)
    exported = export(tmp_path / "graphs", directory, ("native",), precision)
    checkpoint = exported.checkpoint
    graphs = GraphModel(
        exported.directory,
        {role: exported.graph(role, "native") for role in ("encoder", "decoder", "forced")},
        checkpoint.tokens,
        checkpoint.dimensions,
    )
    original = EagerModel(checkpoint.model, checkpoint.tokens)
    generator = np.random.default_rng(5)
    batch = [[*generator.integers(110, 250, length).tolist(), checkpoint.tokens.eos] for length in (3, 7, 12, 25)]
    for beams in (1, 4):
        options = dataclasses.replace(checkpoint.generation, beam_size=beams, max_length=24)
        together = graphs.generate(batch, options)
        assert [graphs.generate([source], options)[0] for source in batch] == together
    for source, answer in zip(batch, together, strict=True):
        log_probs = original.log_probs(source, answer.tokens)[np.arange(len(answer.tokens)), list(answer.tokens)]
        worst = np.abs(graphs.scored(source, answer.tokens) - log_probs).max()
        assert worst < {"fp16": 0.05, "int8": 3.0}[precision]


def runtime_on_the_double(exported: Exported, bundle: Path) -> LoadedModel:
    """The engine, on the double of a GPU."""
    manifest = with_engines(exported, bundle)
    cuda = CudaDouble((8, 6))
    trt = TensorRtDouble(cuda)
    trt.know(bundle, manifest)
    runtime = TensorRtRuntime(bundle, manifest, importing=importing_doubles(cuda, trt))
    limits, facts = EngineLimits(max_rows=16, max_beam_size=4), model_facts(manifest)
    tokenizer = open_tokenizer(bundle, manifest.tokenizer, manifest.tokens)
    return LoadedModel(manifest, tokenizer, Engine(runtime, facts, limits), runtime.contract(limits, facts))


def engines_build(exported: Exported) -> None:
    """TensorRT takes all graphs: here, because tracing them takes longer than building does."""
    if importlib.util.find_spec("tensorrt_rtx_bindings") is None:
        return
    engines = build_engines(
        exported.directory,
        exported.graphs,
        dimensions=exported.checkpoint.dimensions,
        precision="fp32",
        options=BuildOptions(limits=ProfileLimits(max_batch=8, max_beams=4, cache_buckets=())),
        stages=QuietStages(),
    )
    assert {engine.role for engine in engines} == {"encoder", "decoder", "forced"}
    assert all(engine.compute_capabilities[0] == "8.0" for engine in engines)


MASKED = (3, 9, 10, 11, 30, 51)


@pytest.mark.parametrize(
    ("lowering", "precision", "allowed"),
    [
        pytest.param("native", "fp32", 1e-5, marks=needs_operators),
        pytest.param("native", "int8", 0.6, marks=needs_operators),
        ("portable", "fp32", 1e-5),
    ],
)
def test_a_token_masked_by_the_logits_bias_is_never_generated(
    tmp_path: Path, lowering: Lowering, precision: Any, allowed: float
) -> None:
    weights = marian_weights(marian_config())
    weights["final_logits_bias"][0, MASKED] = float("-inf")
    checkpoint = write_marian(tmp_path / "model", weights=weights)
    exported = export(tmp_path / "graphs", checkpoint, (lowering,), precision)
    read = exported.checkpoint
    graphs = GraphModel(
        exported.directory,
        {role: exported.graph(role, lowering) for role in ("encoder", "decoder", "forced")},
        read.tokens,
        read.dimensions,
    )
    source, target = [4, 5, 6, 0], [7, 8, 12, 0]
    best, log_probs = graphs.forced(source, target)
    expected = np.take_along_axis(EagerModel(read.model, read.tokens).log_probs(source, target), best, axis=1)
    possible = np.isfinite(log_probs)  # portable graphs also return what can't be generated, last
    assert not set(MASKED) & set(best[possible].tolist())
    assert set(best[~possible].tolist()) <= set(MASKED)
    assert np.abs(expected[possible] - log_probs[possible]).max() < allowed
    options = dataclasses.replace(read.generation, beam_size=4, max_length=12)
    answers = graphs.generate([source, [9, 0]], options)
    assert not set(MASKED) & {token for answer in answers for token in answer.tokens}
