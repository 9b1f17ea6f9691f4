"""The worker's end of the conversation: one JSON object a line, asked and answered. Standard library only.

{"op": "load", …}  ->  {"seconds": 1.2, "version": "…", "settings": {…}}
{"op": "run", "sources": [[ids…]…], "batch": 8, "beam": 4, "target_tokens": 24 | null, "keep": false}
                   ->  {"wall_s": …, "cpu_s": …, "tokens": …, "outputs": [[ids…]…] when asked to keep them}
{"op": "score", "sources": [[ids…]…], "targets": [[ids…]…]}  ->  {"log_probs": [[…]…]}     (dragoman's own side)
{"op": "memory"}   ->  {"peak_bytes": …, "idle_bytes": …}
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, Protocol

__all__ = ["Side", "serve"]

Ids = list[list[int]]


class Side(Protocol):
    """One library with a model in it."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Open the model; what is returned goes into the report."""

    def run(self, sources: Ids, batch: int, beam: int, target_tokens: int | None) -> Ids:
        """Translate all sources, at most `batch` at a time; outputs of exactly `target_tokens` where that is given."""

    def score(self, sources: Ids, targets: Ids) -> list[list[float]]:  # noqa: ARG002 - of those that can
        """The log-probability of each token of the targets."""
        raise ValueError("this side gives no scores")


def serve(side: Side) -> None:
    """Answer until the input ends. Whatever else prints must not reach the parent, so the real output is kept aside."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = _answer(side, json.loads(line))
        except Exception:  # the parent decides what a failed cell means; it gets the whole story
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    operation = request.pop("op")
    if operation == "load":
        started = time.perf_counter()
        described = side.load(request)
        return {**described, "seconds": time.perf_counter() - started, "idle_bytes": _resident_bytes()}
    if operation == "run":
        return _timed(side, request)
    if operation == "score":
        return {"log_probs": side.score(**request)}
    if operation == "memory":
        return {"peak_bytes": _peak_bytes(), "idle_bytes": _resident_bytes()}
    raise ValueError(f"unknown operation {operation!r}")


def _timed(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    keep = request.pop("keep", False)
    wall, cpu = time.perf_counter(), time.process_time()
    outputs = side.run(**request)
    figures = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return {**figures, "tokens": sum(map(len, outputs)), **({"outputs": outputs} if keep else {})}


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - read in each cell, kept light
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes() -> int:
    """Of this program alone: getrusage would begin with what the parent had when it forked."""
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        peak = next(line for line in status if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024
