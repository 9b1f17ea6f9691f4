from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from dragoman.errors import ExportError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.lowering.portable.narrow import computed_in
from exported_graphs import EACH_LOWERING, Exported, eager_logits, export, log_softmax, needs_operators
from forced_steps import random_workload, worst_difference
from random_marian import marian_config, marian_weights, write_marian

FEED_FORWARD = "encoder.layers.0.feed_forward"


def test_portable_caches_are_float16_and_what_the_search_reads_is_float32(tiny_fp16: Exported) -> None:
    decoder = tiny_fp16.graph("decoder", "portable")
    types = {spec.name: spec.dtype for spec in (*decoder.inputs, *decoder.outputs)}
    assert types["cross_key_0"] == types["self_value_0"] == types["present_self_key_0"] == "float16"
    assert types["best_log_probs"] == types["best_logits"] == "float32"
    assert tiny_fp16.graph("encoder", "portable").outputs[0].dtype == "float16"


@needs_operators
def test_native_graphs_only_store_float16(tiny_fp16: Exported) -> None:
    decoder = tiny_fp16.graph("decoder", "native")
    assert {spec.dtype for spec in decoder.inputs if spec.name.endswith("cache")} == {"float32"}
    graph = onnx.load(tiny_fp16.directory / decoder.file, load_external_data=False).graph
    stored = {tensor.name: tensor.data_type for tensor in graph.initializer if tensor.external_data}
    assert set(stored.values()) == {onnx.TensorProto.FLOAT16}


def test_float16_weights_take_half_the_space(tiny_fp16: Exported, tiny_fp32: Exported) -> None:
    half, full = ((exported.directory / "weights.bin").stat().st_size for exported in (tiny_fp16, tiny_fp32))
    assert half < 0.75 * full  # a half and the alignment


@pytest.mark.parametrize("lowering", EACH_LOWERING)
def test_fp16_stays_close_to_fp32(tiny_fp32: Exported, tiny_fp16: Exported, lowering: str) -> None:
    work = random_workload(53, 53, start=52)
    exact, half = (exported.stepper(lowering).run(work, candidates=53) for exported in (tiny_fp32, tiny_fp16))
    for one, two in zip(exact, half, strict=True):
        ordered = [np.take_along_axis(best.log_probs, np.argsort(best.tokens, -1), -1) for best in (one, two)]
        assert np.abs(ordered[0] - ordered[1]).max() < 0.02


@pytest.fixture(scope="module")
def overflowing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A feed-forward network whose hidden units are beyond float16, and whose output is reasonable again."""
    weights = marian_weights(marian_config())
    weights["model.encoder.layers.0.fc1.weight"] *= 1e6
    weights["model.encoder.layers.0.fc1.bias"] *= 1e6
    weights["model.encoder.layers.0.fc2.weight"] *= 1e-6
    return write_marian(tmp_path_factory.mktemp("models") / "overflowing", weights=weights)


def test_a_layer_beyond_float16_overflows_when_it_computes_in_it(overflowing: Path) -> None:
    model = computed_in(torch.float16, read_checkpoint(overflowing).model)
    network = model.get_submodule(FEED_FORWARD)
    assert not torch.isfinite(network(torch.ones(1, 1, 16).half())).all()


def test_a_layer_kept_in_fp32_does_not_overflow(overflowing: Path, tmp_path: Path) -> None:
    kept = export(tmp_path / "fp16", overflowing, ("portable",), "fp16", keep_in_fp32=(FEED_FORWARD,))
    work = random_workload(53, 53, start=52)
    exact = eager_logits(kept.checkpoint.model, work)
    for step, best in enumerate(kept.stepper("portable").run(work)):
        assert worst_difference(best, log_softmax(exact[:, step]), exact[:, step]) < 0.05
    graph = onnx.load(tmp_path / "fp16" / "encoder.portable.onnx", load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    assert types[f"{FEED_FORWARD}.inner.weight"] == onnx.TensorProto.FLOAT
    assert types["encoder.layers.0.self_attention.qkv.weight"] == onnx.TensorProto.FLOAT16


@pytest.mark.parametrize(
    "name", ["decoder.layers.0.self_attention", "decoder.layers.0.cross_attention", "encoder.layers.0.self_attention"]
)
def test_any_layer_can_be_kept_in_fp32(tiny_checkpoint: Path, name: str) -> None:
    model = computed_in(torch.float16, read_checkpoint(tiny_checkpoint).model, (name,))
    from dragoman.export.transformer import KeyValue

    lengths = torch.tensor([5], dtype=torch.int32)
    memories = model.encode(torch.arange(5)[None], lengths)
    assert memories[0].key.dtype == torch.float16
    empty = torch.zeros(1, 2, 8, 8).half()
    place = torch.zeros(1, 1, dtype=torch.int32)
    logits, presents = model.step(place.long(), place, lengths, memories, [KeyValue(empty, empty)])
    assert presents[0].value.dtype == torch.float16
    assert torch.isfinite(logits).all()


def test_the_original_model_is_left_in_float32_and_tied_weights_stay_tied(tiny_checkpoint: Path) -> None:
    model = read_checkpoint(tiny_checkpoint).model
    halved = computed_in(torch.float16, model)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.dtype for parameter in halved.parameters()} == {torch.float16}
    assert halved.output.weight.data_ptr() == halved.source_embedding.weight.data_ptr()


def test_an_unknown_module_can_not_be_kept(tiny_checkpoint: Path) -> None:
    with pytest.raises(ExportError, match=r"encoder\.layers\.9"):
        computed_in(torch.float16, read_checkpoint(tiny_checkpoint).model, ("encoder.layers.9",))
