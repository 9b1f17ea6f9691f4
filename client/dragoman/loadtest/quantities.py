"""Quantities as people write them: `60s`, `500ms`, `50/s`, `1%`."""

from __future__ import annotations

import math
import re

from dragoman.errors import UsageError

__all__ = ["duration_s", "format_duration", "percentage", "rate_per_s"]

_UNIT_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"


def duration_s(text: str) -> float:
    """`500ms`, `60s`, `2m`, `1h`; a bare number is seconds."""
    match = re.fullmatch(rf"{_NUMBER}\s*(us|µs|ms|s|min|m|h)?", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration; write it like 500ms, 60s or 2m")
    return float(match[1]) * _UNIT_S[match[2] or "s"]


def rate_per_s(text: str) -> float:
    """`50/s`, `3000/m`; a bare number is per second."""
    match = re.fullmatch(rf"{_NUMBER}\s*(?:/\s*(s|min|m|h))?", text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{text!r} is not a rate above zero; write it like 50/s or 3000/m")
    return float(match[1]) / _UNIT_S[match[2] or "s"]


def percentage(text: str) -> float:
    """`5%` as 0.05; a bare number is a share, so `0.05` is the same."""
    match = re.fullmatch(rf"{_NUMBER}\s*(%)?", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a share; write it like 5%")
    return float(match[1]) / (100 if match[2] else 1)


def format_duration(seconds: float) -> str:
    """Three significant digits with the unit that fits."""
    if not math.isfinite(seconds):
        return "–"
    if abs(seconds) >= 100:
        return f"{seconds:.0f} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= scale:
            value = seconds / scale
            return f"{value:.{max(0, 2 - int(math.log10(abs(value))))}f} {unit}"
    return f"{seconds * 1e6:.0f} µs"
