"""How high a rate a server holds: the curves of the online benchmark read against limits on their p99."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["by_limit", "has_failed_twice"]


def by_limit(curves: dict[str, Any]) -> list[dict[str, Any]]:
    """The highest sustained rates: each side within its own limit, and both within the same one, of either side."""
    own = {name: curve["limit_ms"] for name, curve in curves.items()}
    return [
        {"limits_ms": limits, **_sustained(curves, limits)}
        for limits in (own, *(dict.fromkeys(curves, limit) for limit in sorted(own.values())))
    ]


def _sustained(curves: dict[str, Any], limits: dict[str, float]) -> dict[str, Any]:
    rates = {name: _highest(curve["points"], limits[name]) for name, curve in curves.items()}
    ours, theirs = rates["dragoman"], rates["ctranslate2"]
    return {"rates": rates, "ratio": ours / theirs if theirs else None}


def _highest(points: Sequence[dict[str, Any]], limit_ms: float) -> float:
    """The highest rate within the limit; a lower one that was not is noise. 0 when there is none."""
    held = [point for point in points if point["p99_ms"] <= limit_ms and not any(each["failed"] for each in point["rounds"])]
    return max((float(point["rate"]) for point in held), default=0.0)


def has_failed_twice(points: Sequence[dict[str, Any]], limit_ms: float) -> bool:
    """Whether the last two rates of a climb were too much."""
    return len(points) >= 2 and not any(_highest([point], limit_ms) for point in points[-2:])
