"""The fused operators with all they can do: relative positions, RMS norms, no biases, narrow attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from dragoman.bundle.manifest import Role
from dragoman.export.graphs import describe
from dragoman.export.lowering import CpuLowering, trace
from dragoman.export.transformer import Transformer, TransformerConfig
from exported_graphs import eager_logits, log_softmax
from forced_steps import Stepper, random_workload, worst_difference


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


@pytest.fixture(scope="module")
def stepper(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Stepper:
    directory = tmp_path_factory.mktemp("relative")

    def written(role: Role) -> Path:
        path = directory / f"{role}.cpu.onnx"
        ir.save(trace(model, role, CpuLowering()), path)
        return path

    encoder, decoder = (describe(written(role), role, CpuLowering()) for role in ("encoder", "decoder"))
    return Stepper(directory, encoder, decoder)


def test_the_fused_operators_take_relative_positions(model: Transformer, stepper: Stepper) -> None:
    work = random_workload(53, 53, start=52)
    expected = eager_logits(model, work)
    for step, best in enumerate(stepper.run(work)):
        assert worst_difference(best, log_softmax(expected[:, step]), expected[:, step]) < 1e-4


def test_relative_positions_are_each_rows_own(model: Transformer, stepper: Stepper) -> None:
    work = random_workload(53, 53, start=52)
    expected = eager_logits(model, work)
    for at, best in stepper.run_in_place(work):
        logits = expected[np.arange(work.rows), at]
        assert worst_difference(best, log_softmax(logits), logits) < 1e-4
