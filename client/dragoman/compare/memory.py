"""What a process and all that it has started hold in memory."""

from __future__ import annotations

from pathlib import Path

__all__ = ["tree_bytes"]

PROC = Path("/proc")


def tree_bytes(root: int) -> int | None:
    """Proportional set size: a page that several share counts once. None where the system does not tell."""
    if not (PROC / "self" / "smaps_rollup").is_file():
        return None
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    tree = {root}
    while grown := {pid for pid, parent in parents.items() if parent in tree and pid not in tree}:
        tree |= grown
    return sum(map(_proportional_bytes, tree))


def _pids() -> list[int]:
    return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        status = (PROC / str(pid) / "stat").read_text()
    except OSError:  # it has ended
        return None
    return int(status.rpartition(")")[2].split()[1])  # a name may have spaces and brackets in it


def _proportional_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
