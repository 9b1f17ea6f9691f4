"""The highest rate that a server holds: doubled until it breaks, then narrowed by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.errors import UsageError

__all__ = ["Capacity", "TriedRate", "find_capacity"]

_NARROW_ENOUGH = 0.05
_MOST_PROBES = 24
_LOWEST_RATE = 0.1


@dataclass(frozen=True, slots=True)
class TriedRate:
    """One rate that was tried, and whether every objective held."""

    rate: float
    holds: bool
    why_not: str = ""
    client_limited: bool = False
    p50_s: float = math.nan
    p99_s: float = math.nan


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the search found; `rate` is 0 when even the lowest rate broke an objective."""

    probes: tuple[TriedRate, ...]

    @property
    def rate(self) -> float:
        return max((probe.rate for probe in self.probes if probe.holds), default=0.0)

    @property
    def client_limited(self) -> bool:
        """Where the objectives broke first, the client was at its own limit: the server may hold more than `rate`."""
        broke = [probe for probe in self.probes if not probe.holds and probe.rate > self.rate]
        return bool(broke) and min(broke, key=lambda probe: probe.rate).client_limited


def find_capacity(probe: Callable[[float], TriedRate], first_rate: float) -> Capacity:
    """Search between a rate that holds and one that breaks until they are 5% apart.

    A rate that held once is tried no more: near the limit the result varies from run to run, which the 5% allow for. The
    rate that limits the result must break twice, because the first time the machine may have been busy with something else.
    """
    if first_rate <= 0:
        raise UsageError(f"--rate {first_rate:g} must be above 0 to search from")
    probes: list[TriedRate] = []
    holds, rate = 0.0, first_rate
    broke: list[float] = []  # rates above `holds`, each tried once
    while len(probes) < _MOST_PROBES:
        probes.append(tried := probe(rate))
        if tried.holds:
            holds = rate
            broke = [other for other in broke if other > holds]
        elif rate in broke or rate < _LOWEST_RATE:
            break
        else:
            broke.append(rate)
        breaks = min(broke, default=math.inf)
        found = holds and breaks / holds <= 1 + _NARROW_ENOUGH
        rate = breaks if found else _between(holds, breaks)
    return Capacity(tuple(probes))


def _between(holds: float, breaks: float) -> float:
    if breaks == math.inf:
        return holds * 2
    # The geometric mean: 5% of a low rate and 5% of a high one take equally many probes.
    return float((holds * breaks) ** 0.5) if holds else breaks / 2
