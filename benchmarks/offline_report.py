"""The offline cells for people: a table a workload, the totals, and every peer's version and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.statistics import Spread, geometric_mean

__all__ = ["offline_table", "others_table"]

Record = dict[str, Any]


def offline_table(records: Sequence[Record], summary: Record) -> str:
    """Ratios above 1: dragoman is faster. Median of the rounds, lowest and highest in brackets."""
    lines = [_totals(summary), "", *_means(records), ""]
    for workload in dict.fromkeys(record["cell"]["workload"] for record in records):
        chosen = [record for record in records if record["cell"]["workload"] == workload]
        lines += [f"## {workload}", "", *_cells(chosen), ""]
    lines += ["## Memory and start", "", *_memory(records)]
    return "\n".join(lines)


def _totals(summary: Record) -> str:
    rows = [
        "| | wall time | CPU time |",
        "|---|---|---|",
        f"| the worst cell | {summary['wall_worst']:.2f} | {summary['cpu_worst']:.2f} |",
        f"| cells below 1.0x, of {summary['cells']} | {summary['wall_cells_below_1']} | {summary['cpu_cells_below_1']} |",
        f"| geometric mean | {summary['wall_geometric_mean']:.2f} | {summary['cpu_geometric_mean']:.2f} |",
        f"| peak memory, ours over CTranslate2's: the worst | {summary['memory_worst']:.2f} | |",
    ]
    return "\n".join(rows)


def _means(records: Sequence[Record]) -> list[str]:
    lines = ["| model | precision | geometric mean, wall time | lowest | geometric mean, CPU time | lowest |"]
    lines.append("|---|---|---|---|---|---|")
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["cell"]["workload"], record["cell"]["precision"]), []).append(record)
    for (workload, precision), chosen in groups.items():
        wall, cpu = ([record[key]["median"] for record in chosen] for key in ("wall_ratio", "cpu_ratio"))
        lines.append(
            f"| {workload} | {precision} | {geometric_mean(wall):.2f} | {min(wall):.2f} "
            f"| {geometric_mean(cpu):.2f} | {min(cpu):.2f} |"
        )
    return lines


def _cells(records: Sequence[Record]) -> list[str]:
    lines = [
        "| precision | threads | beam | batch | ours, ms a sentence | CTranslate2 | wall ratio | CPU ratio | its settings |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        cell = record["cell"]
        ours, theirs = (_ms_a_sentence(record, side) for side in ("dragoman", "ctranslate2"))
        lines.append(
            f"| {cell['precision']} | {cell['threads']} | {cell['beam']} | {cell['batch']} | {ours:.2f} | {theirs:.2f} "
            f"| {Spread(**record['wall_ratio'])} | {Spread(**record['cpu_ratio'])} | {record['ctranslate2_settings']} |"
        )
    return lines


def _ms_a_sentence(record: Record, side: str) -> float:
    walls = sorted(run["wall_s"] for run in record[side])
    return float(walls[len(walls) // 2]) * 1000 / int(record["sentences"])


def _memory(records: Sequence[Record]) -> list[str]:
    lines = [
        "| model | precision | threads | peak, ours | peak, CTranslate2 | ratio | loading, ours | loading, CTranslate2 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    seen = set()
    for record in records:
        cell = record["cell"]
        key = (cell["workload"].split(" ")[0], cell["precision"], cell["threads"])
        if key in seen:
            continue
        seen.add(key)
        ours, theirs = (record["memory"][side]["peak_bytes"] / 1e6 for side in ("dragoman", "ctranslate2"))
        loads = [record["load"][side]["seconds"] for side in ("dragoman", "ctranslate2")]
        lines.append(
            f"| {key[0]} | {key[1]} | {key[2]} | {ours:.0f} MB | {theirs:.0f} MB | {ours / theirs:.2f} "
            f"| {loads[0]:.2f} s | {loads[1]:.2f} s |"
        )
    return lines


def others_table(records: Sequence[Record]) -> str:
    """Hugging Face and Optimum: how many times faster dragoman is."""
    lines = ["| peer | beam | batch | ours, ms a sentence | theirs | wall ratio |", "|---|---|---|---|---|---|"]
    for record in records:
        if "unavailable" in record:
            lines.append(f"| {record['peer']} | | | | | not measured: {record['unavailable']} |")
            continue
        ours, theirs = (_ms_a_sentence(record, side) for side in ("dragoman", "peer_runs"))
        lines.append(
            f"| {record['peer']} ({record['version']}) | {record['beam']} | {record['batch']} | {ours:.2f} | {theirs:.2f} "
            f"| {Spread(**record['wall_ratio'])} |"
        )
    return "\n".join(lines)
