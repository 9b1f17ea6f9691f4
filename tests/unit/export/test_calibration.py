from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dragoman.errors import UsageError
from dragoman.export.calibration import CalibrationText, activation_ranges, calibrate, find_overflowing
from dragoman.export.calibration.histogram import Magnitudes
from dragoman.export.calibration.ranges import _RangeObserver
from dragoman.export.checkpoint import Checkpoint, read_checkpoint

TEXT = CalibrationText(((5, 6, 7, 8, 9, 10, 0), (11, 12, 0), (13, 0)))


@pytest.fixture
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    """Fresh for every test, because they spoil its weights."""
    return read_checkpoint(tiny_checkpoint)


def ignore(_share: float) -> None:
    """Nobody watches."""


def overflowing(checkpoint: Checkpoint) -> tuple[str, ...]:
    return find_overflowing(checkpoint.model, checkpoint.tokens, TEXT, ignore)


def scale(checkpoint: Checkpoint, module: str, factor: float) -> None:
    """Multiply all parameters of one module."""
    for parameter in checkpoint.model.get_submodule(module).parameters():
        parameter.mul_(factor)


def test_nothing_overflows_in_a_reasonable_model(checkpoint: Checkpoint) -> None:
    assert overflowing(checkpoint) == ()


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_the_one_feed_forward_network_whose_hidden_units_overflow_is_found(checkpoint: Checkpoint, side: str) -> None:
    scale(checkpoint, f"{side}.layers.0.feed_forward.inner", 1e6)
    scale(checkpoint, f"{side}.layers.0.feed_forward.outer", 1e-6)
    assert overflowing(checkpoint) == (f"{side}.layers.0.feed_forward",)


def test_a_module_with_a_large_result_is_blamed_and_the_sum_after_it_is_not(checkpoint: Checkpoint) -> None:
    scale(checkpoint, "decoder.layers.0.feed_forward.outer", 1e4)
    checkpoint.model.get_submodule("decoder.layers.0.feed_forward.outer").bias.fill_(40_000.0)
    assert overflowing(checkpoint) == ("decoder.layers.0.feed_forward",)


def test_a_linear_layer_that_takes_what_fp16_can_not_carry_is_blamed_too(checkpoint: Checkpoint) -> None:
    scale(checkpoint, "encoder.layers.0.feed_forward_norm", 1e5)
    found = overflowing(checkpoint)
    assert "encoder.layers.0.feed_forward_norm" in found
    assert "decoder.layers.0.cross_attention" in found
    assert "encoder.layers.0.self_attention" not in found


def test_a_weight_that_fp16_can_not_store_is_found_even_if_no_text_meets_it(checkpoint: Checkpoint) -> None:
    checkpoint.model.get_submodule("output").weight[40] *= 1e6  # a token that the text does not hold
    assert "output" in overflowing(checkpoint)


def test_half_of_what_fp16_holds_is_already_too_much(checkpoint: Checkpoint) -> None:
    bias = checkpoint.model.get_submodule("output").bias
    bias.fill_(30_000.0)
    assert overflowing(checkpoint) == ()
    bias.fill_(36_000.0)
    assert overflowing(checkpoint) == ("output",)


def test_every_linear_layer_gets_a_range(checkpoint: Checkpoint) -> None:
    ranges = activation_ranges(checkpoint.model, checkpoint.tokens, TEXT, ignore)
    assert set(ranges) == {
        "encoder.layers.0.self_attention.qkv",
        "encoder.layers.0.self_attention.output",
        "encoder.layers.0.feed_forward.inner",
        "encoder.layers.0.feed_forward.outer",
        "decoder.layers.0.self_attention.qkv",
        "decoder.layers.0.self_attention.output",
        "decoder.layers.0.cross_attention.query",
        "decoder.layers.0.cross_attention.key_value",
        "decoder.layers.0.cross_attention.output",
        "decoder.layers.0.feed_forward.inner",
        "decoder.layers.0.feed_forward.outer",
        "output",
    }
    assert all(reach > 0 for reach in ranges.values())


def test_a_range_grows_with_what_its_layer_sees(checkpoint: Checkpoint) -> None:
    before = activation_ranges(checkpoint.model, checkpoint.tokens, TEXT, ignore)
    scale(checkpoint, "encoder.layers.0.self_attention_norm", 10.0)
    after = activation_ranges(checkpoint.model, checkpoint.tokens, TEXT, ignore)
    name = "encoder.layers.0.feed_forward.inner"
    assert after[name] == pytest.approx(10 * before[name], rel=0.01)
    assert after["encoder.layers.0.self_attention.qkv"] == before["encoder.layers.0.self_attention.qkv"]


def test_padding_does_not_change_the_calibration(checkpoint: Checkpoint) -> None:
    observer = _RangeObserver(checkpoint.model)
    with torch.inference_mode(), observer:
        TEXT.run(checkpoint.model, checkpoint.tokens, ignore, begins=observer.begin)
    real_tokens = sum(map(len, TEXT.sources))
    for name in ("encoder.layers.0.self_attention.qkv", "decoder.layers.0.cross_attention.key_value"):
        assert observer.observed[name].counts.sum() == real_tokens * checkpoint.config.d_model


def test_calibration_leaves_the_model_as_it_was(checkpoint: Checkpoint) -> None:
    calibrate(checkpoint.model, checkpoint.tokens, TEXT, "int8", ignore)
    hooks = [module._forward_pre_hooks | module._forward_hooks for module in checkpoint.model.modules()]
    assert not any(hooks)


def test_a_layer_kept_in_fp32_is_not_quantised(checkpoint: Checkpoint) -> None:
    scale(checkpoint, "encoder.layers.0.feed_forward.inner", 1e6)
    scale(checkpoint, "encoder.layers.0.feed_forward.outer", 1e-6)
    calibration = calibrate(checkpoint.model, checkpoint.tokens, TEXT, "int8", ignore)
    assert calibration.keep_in_fp32 == ("encoder.layers.0.feed_forward",)
    assert "decoder.layers.0.feed_forward.inner" in calibration.ranges
    assert not [name for name in calibration.ranges if name.startswith("encoder.layers.0.feed_forward.")]


def test_fp16_needs_no_ranges_and_fp32_nothing(checkpoint: Checkpoint) -> None:
    assert not calibrate(checkpoint.model, checkpoint.tokens, TEXT, "fp16", ignore).ranges
    watched: list[float] = []
    calibrate(checkpoint.model, checkpoint.tokens, TEXT, "fp32", watched.append)
    assert watched == []


def test_calibration_reports_its_progress(checkpoint: Checkpoint) -> None:
    shares: list[float] = []
    calibrate(checkpoint.model, checkpoint.tokens, TEXT, "int8", shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_calibration_without_text_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one sentence"):
        CalibrationText(())


def test_a_histogram_counts_everything_while_it_grows() -> None:
    magnitudes = Magnitudes()
    magnitudes.add(torch.tensor([0.5, -1.0]))
    magnitudes.add(torch.tensor([[-7.0, 3.0], [0.0, 0.25]]))
    assert magnitudes.counts.sum() == 6
    assert magnitudes.limit == 8.0


def test_a_layer_that_only_saw_zeros_has_no_range() -> None:
    magnitudes = Magnitudes()
    magnitudes.add(torch.zeros(4))
    assert magnitudes.range_for(127) == 0.0


def test_the_range_makes_the_error_of_rounding_and_clipping_least() -> None:
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    values[:10] = 20.0  # a few giants
    magnitudes = Magnitudes()
    magnitudes.add(torch.from_numpy(values))

    def error(reach: float) -> float:
        step = reach / 127
        return float(((np.clip(np.rint(values / step), -127, 127) * step - values) ** 2).mean())

    chosen = magnitudes.range_for(127)
    assert error(chosen) <= 1.02 * min(error(reach) for reach in np.linspace(1, 25, 200))
