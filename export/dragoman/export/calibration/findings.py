"""The calibration results that a lower precision needs before its portable graphs are written."""

from __future__ import annotations

from dragoman.bundle.manifest import Precision, SpecialTokens
from dragoman.export.calibration.overflow import find_overflowing
from dragoman.export.calibration.ranges import activation_ranges
from dragoman.export.calibration.text import CalibrationText
from dragoman.export.lowering.protocol import Calibration
from dragoman.export.progress import Advance
from dragoman.export.transformer import Transformer

__all__ = ["calibrate"]


def calibrate(
    model: Transformer, tokens: SpecialTokens, text: CalibrationText, precision: Precision, advance: Advance
) -> Calibration:
    """Run `text` through the model as often as `precision` needs it.

    A module that fp16 can't hold is not quantised either: eight bits for its largest number leave none for the others.
    """
    if precision in ("fp32", "bf16"):
        return Calibration()
    share = 1.0 if precision == "fp16" else 0.5
    kept = find_overflowing(model, tokens, text, lambda done: advance(done * share))
    if precision == "fp16":
        return Calibration(kept)
    ranges = activation_ranges(model, tokens, text, lambda done: advance(share + done * share))
    inside = tuple(f"{name}." for name in kept)
    return Calibration(kept, {name: reach for name, reach in ranges.items() if not f"{name}.".startswith(inside)})
