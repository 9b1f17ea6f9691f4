"""Whether the load came as planned, or the machine that made it was the limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["ClientUse", "MachineClock"]

_BUSY_SHARE = 0.85
_MACHINE_FULL_SHARE = 0.95
_LATE_SHARE = 0.1
_LATE_S = 0.005


@dataclass(frozen=True, slots=True)
class ClientUse:
    """What the load cost the machine that made it.

    `worker_cpu` are shares of one processor, `machine_cpu` (of everything that ran on the machine) of all of them.
    Lag is how late requests left; in a closed loop, how late the worker came to its own heartbeat.
    """

    worker_cpu: tuple[float, ...]
    machine_cpu: float | None
    lag_p50_s: float
    lag_p99_s: float
    latency_p50_s: float

    @property
    def limits(self) -> list[str]:
        """A sentence for each sign that the client, not the server, set the figures."""
        found = []
        busiest = max(self.worker_cpu, default=0.0)
        if busiest > _BUSY_SHARE:
            found.append(f"a worker process used {busiest:.0%} of a processor; raise --workers")
        # Lateness only counts as a share of what is measured: 5 ms means little to a translation of 300 ms.
        if self.lag_p99_s > max(_LATE_S, _LATE_SHARE * self.latency_p50_s):
            late = f"the client was more than {self.lag_p99_s * 1000:.1f} ms late 1% of the time"
            found.append(f"{late}; raise --workers, or send from a machine that is not busy")
        return found

    @property
    def cautions(self) -> list[str]:
        """What a reader should know, although the load was made as planned."""
        if self.machine_cpu is None or self.machine_cpu < _MACHINE_FULL_SHARE:
            return []
        full = f"all processors of the client's machine were busy ({self.machine_cpu:.0%})"
        return [f"{full}; if the server runs on it too, the two slowed each other"]

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "limits": self.limits, "cautions": self.cautions}

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> ClientUse:
        cpu = tuple(raw["worker_cpu"])
        return ClientUse(cpu, raw["machine_cpu"], raw["lag_p50_s"], raw["lag_p99_s"], raw["latency_p50_s"])


class MachineClock:
    """How busy all processors were between two moments; knows nothing where there is no /proc/stat."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._read()

    def restart(self) -> None:
        self._start = self._read()

    def busy_share(self) -> float | None:
        now = self._read()
        if self._start is None or now is None or now[1] <= self._start[1]:
            return None
        return (now[0] - self._start[0]) / (now[1] - self._start[1])

    def _read(self) -> tuple[int, int] | None:
        """(busy, all) in the kernel's ticks; waiting for a disk is not busy."""
        try:
            first = self._stat.read_text().split("\n", 1)[0].split()
        except OSError:
            return None
        ticks = [int(tick) for tick in first[1:9]]  # user nice system idle iowait irq softirq steal
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
