"""The files of a run: PREFIX.json for programs, PREFIX.html for people."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dragoman.drafts import draft_of
from dragoman.errors import UsageError
from dragoman.loadtest.capacity import Capacity
from dragoman.loadtest.report import render_page
from dragoman.loadtest.result import RunResult
from dragoman.loadtest.slo import Verdict

__all__ = ["check_writable", "write_outputs"]


def check_writable(prefix: Path) -> None:
    """Refuse before the load what would fail after it."""
    folder = prefix.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"can't write {prefix}.json: {folder} is not a folder that can be written to; see --output")
    if not prefix.name or prefix.is_dir():
        raise UsageError(f"--output {prefix} must be the start of a file name, like results/monday")


def write_outputs(
    prefix: Path, result: RunResult, verdicts: Sequence[Verdict], capacity: Capacity | None = None
) -> tuple[Path, Path]:
    """Write both files and return their paths."""
    document = result.to_json()
    document["objectives"] = [
        {"objective": verdict.objective.written, "value": _or_none(verdict.value), "holds": verdict.holds}
        for verdict in verdicts
    ]
    if capacity is not None:
        probes = [{name: _or_none(value) for name, value in asdict(probe).items()} for probe in capacity.probes]
        document["capacity"] = {"rate": capacity.rate, "client_limited": capacity.client_limited, "probes": probes}
    paths = prefix.with_name(f"{prefix.name}.json"), prefix.with_name(f"{prefix.name}.html")
    texts = json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n", render_page(result, verdicts, capacity)
    for path, text in zip(paths, texts, strict=True):
        with draft_of(path) as draft:
            draft.write_text(text, encoding="utf-8")
    return paths


def _or_none(value: object) -> object:
    """JSON knows no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value
