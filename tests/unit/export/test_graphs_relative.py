"""A Transformer with relative positions, RMS norms, no biases and narrow attention, as graphs."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch

from dragoman.bundle.manifest import Graph, Role
from dragoman.export.graphs import describe
from dragoman.export.lowering import Calibration, lowering_named, trace
from dragoman.export.transformer import Transformer, TransformerConfig, WholeModel
from dragoman.export.weights import in_memory
from exported_graphs import EACH_LOWERING, eager_logits, log_softmax
from forced_steps import STEPPERS, random_workload, worst_difference


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = TransformerConfig(
        d_model=24,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=2,
        encoder_feed_forward=20,
        decoder_feed_forward=20,
        source_vocabulary=53,
        target_vocabulary=53,
        max_source_positions=30,
        max_target_positions=30,
        attention_width=16,
        positions="relative",
        relative_buckets=8,
        relative_max_distance=12,
        norm="rms",
        final_norm=True,
        activation="gelu_tanh",
        gated=True,
        attention_bias=False,
        feed_forward_bias=False,
        attention_scale=1.0,
        output_bias=False,
        output_scale=24**-0.5,
    )
    model = Transformer(config).eval()
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture(scope="module", params=EACH_LOWERING)
def stepper(request: pytest.FixtureRequest, model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory, lowering = tmp_path_factory.mktemp("relative"), lowering_named(request.param, model.choices)
    prepared = lowering.prepared(WholeModel(model), "fp32", Calibration(), in_memory)

    def written(role: Role) -> Graph:
        traced, path = trace(prepared, role, lowering), directory / f"{role}.onnx"
        lowering.finish(traced, role, "fp32", Calibration())
        ir.save(traced, path)
        return describe(path, role, lowering)

    return STEPPERS[lowering.name](directory, written("encoder"), written("decoder"))


def test_graphs_take_relative_positions(model: Transformer, stepper: Any) -> None:
    work = random_workload(53, 53, start=52)
    expected = eager_logits(model, work)
    for step, best in enumerate(stepper.run(work)):
        assert worst_difference(best, log_softmax(expected[:, step]), expected[:, step]) < 1e-4


@pytest.mark.parametrize("stepper", ["portable"], indirect=True)  # native: tests/unit/native/test_attention.py
def test_every_row_has_relative_positions_of_its_own(model: Transformer, stepper: Any) -> None:
    work = random_workload(53, 53, start=52)
    expected = eager_logits(model, work)
    for rows, at, best in stepper.run_shuffled(work):
        logits = expected[rows, at]
        assert worst_difference(best, log_softmax(logits), logits) < 1e-4
