"""Reading the highest sustained rate off a curve."""

from __future__ import annotations

from typing import Any

from benchmarks.sustained import by_limit, has_failed_twice


def points(*rates: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"rate": rate, "p99_ms": p99, "rounds": [{"failed": 0}]} for rate, p99 in rates]


CURVES = {
    "dragoman": {"limit_ms": 160.0, "points": points((8, 100), (10, 170), (12, 155), (15, 200), (18, 310), (22, 900))},
    "ctranslate2": {"limit_ms": 320.0, "points": points((8, 150), (10, 310), (12, 400), (15, 500))},
}


def test_the_highest_rate_within_the_limit_counts_whatever_happened_below_it() -> None:
    own, tight, loose = by_limit(CURVES)
    assert own["rates"] == {"dragoman": 12, "ctranslate2": 10}
    assert tight["rates"] == {"dragoman": 12, "ctranslate2": 8}
    assert loose["rates"] == {"dragoman": 18, "ctranslate2": 10}
    assert tight["ratio"] == 1.5


def test_a_rate_at_which_anything_failed_is_not_sustained() -> None:
    failing = {name: {**curve, "points": [dict(point) for point in curve["points"]]} for name, curve in CURVES.items()}
    failing["ctranslate2"]["points"][0]["rounds"] = [{"failed": 0}, {"failed": 1}]
    failing["ctranslate2"]["points"][1]["rounds"] = [{"failed": 1}]
    assert by_limit(failing)[0]["rates"]["ctranslate2"] == 0
    assert by_limit(failing)[0]["ratio"] is None


def test_a_climb_ends_after_two_failures_in_a_row() -> None:
    assert has_failed_twice(CURVES["ctranslate2"]["points"], 320)
    assert not has_failed_twice(CURVES["ctranslate2"]["points"][:3], 320)
