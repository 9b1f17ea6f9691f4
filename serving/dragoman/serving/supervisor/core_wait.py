"""How long a process has waited for a core: a process without a core is silent, but not hung."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CoreWait"]


class CoreWait:
    """Measures the threads of a process by the kernel's counters. A kernel without them reports no waiting."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._threads = proc / str(pid) / "task"
        self._waited_s = self._read()

    def since_last_s(self) -> float:
        """Since the last call: the waiting time of the thread that has waited longest."""
        before, self._waited_s = self._waited_s, self._read()
        return max((now - before.get(thread, now) for thread, now in self._waited_s.items()), default=0.0)

    def _read(self) -> dict[str, float]:
        waited_s = {}
        try:
            for thread in self._threads.iterdir():
                _, waited_ns, _ = (thread / "schedstat").read_text(encoding="ascii").split()
                waited_s[thread.name] = int(waited_ns) / 1e9
        except OSError:  # the process has ended, one of its threads has, or the kernel counts nothing
            pass
        return waited_s
