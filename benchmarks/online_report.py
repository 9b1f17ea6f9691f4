"""The online benchmark as a page: unloaded latencies, sustained rates, and the curves side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["online_table"]


def online_table(contests: Sequence[dict[str, Any]]) -> str:
    """The curves side by side, a section for each model."""
    return "\n\n".join(_section(figures) for figures in contests)


def _section(figures: dict[str, Any]) -> str:
    lines = [
        f"## {figures['model']}",
        "",
        f"{figures['precision']}, beam {figures['beam']}; medians of rounds in turn. dragoman with "
        f"{figures['dragoman_settings']}, CTranslate2 on Triton with {figures['ctranslate2_settings']}: "
        "the best of those tried.",
        "",
        "| server | unloaded p50 | four times that |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {figures[name]['unloaded_ms']:.1f} ms | {figures[name]['limit_ms']:.0f} ms |"
        for name in ("dragoman", "ctranslate2")
    ]
    lines += ["", "| limit on p99 | dragoman | CTranslate2 | ratio |", "|---|---|---|---|"]
    for row in figures["limits"]:
        limits, rates = row["limits_ms"], row["rates"]
        same = len(set(limits.values())) == 1
        limit = f"{limits['dragoman']:.0f} ms for both" if same else "each its own"
        ratio = "none" if row["ratio"] is None else f"{row['ratio']:.2f}"
        lines.append(f"| {limit} | {rates['dragoman']:g}/s | {rates['ctranslate2']:g}/s | {ratio} |")
    lines.append("")
    lines += ["| rate | dragoman p50 / p99 | CTranslate2 p50 / p99 |", "|---|---|---|"]
    by_rate = {side: {point["rate"]: point for point in figures[side]["points"]} for side in ("dragoman", "ctranslate2")}
    for rate in sorted({*by_rate["dragoman"], *by_rate["ctranslate2"]}):
        cells = [_latency(by_rate[side].get(rate)) for side in ("dragoman", "ctranslate2")]
        lines.append(f"| {rate:g}/s | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _latency(point: dict[str, float] | None) -> str:
    if point is None:
        return ""
    failed = f", {point['failed']:.0f} failed" if point["failed"] else ""
    return f"{point['p50_ms']:.0f} / {point['p99_ms']:.0f} ms{failed}"
