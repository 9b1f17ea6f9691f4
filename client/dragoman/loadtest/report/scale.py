"""From values to places on paper, and where the ticks stand."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Scale", "short_duration", "short_number"]

_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or logarithmic axis from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @staticmethod
    def linear(high: float, start: float, end: float) -> Scale:
        """From 0 to the first round number at or above `high`."""
        step = _round_step(high / 4) if high > 0 else 0.25
        return Scale(0.0, max(1, math.ceil(high / step - 1e-9)) * step, start, end)

    @staticmethod
    def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
        return Scale(low, max(high, low * 1.01), start, end, log=True)

    def at(self, value: float) -> float:
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.log:
            step = _round_step((self.high - self.low) / 5)
            return [self.low + number * step for number in range(int((self.high - self.low) / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = _STEPS[:1] if self.high / self.low > 1000 else _STEPS[:3]
        found = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((step * power for step in _STEPS if step * power >= least * (1 - 1e-9)), 10 * power)


def short_number(value: float) -> str:
    """`1.5k`, `20`, `0.5`."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{float(f'{value:.4g}'):g}"


def short_duration(seconds: float) -> str:
    """A tick: `0`, `50 ms`, `1.5 s`."""
    if seconds == 0:
        return "0"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9999:
            return f"{float(f'{seconds / scale:.3g}'):g} {unit}"
    return f"{float(f'{seconds * 1e6:.3g}'):g} µs"
