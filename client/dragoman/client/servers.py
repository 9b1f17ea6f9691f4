"""Which of several servers to call: round robin over those that are up. Pure bookkeeping by server number."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

__all__ = ["Servers"]

FIRST_REST_S = 0.5
LONGEST_REST_S = 10.0


@dataclass(slots=True)
class _Health:
    """`rest_s` is 0 for a server that is up; it doubles with every probe that finds it still down."""

    seen_at: float
    rest_s: float = 0.0
    rests_until: float = 0.0
    probed: bool = False


class Servers:
    """Round robin with failover; a server that went down is used again only after a probe found it up.

    Thread-safe. With a single server nothing is ever left out: there is no other.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._health = [_Health(seen_at=clock()) for _ in range(count)]
        self._turn = 0
        self.any_answered = False
        """Whether one of them has ever served this client: only then is it known that the addresses are right."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._health)

    def pick(self, tried: Collection[int] = ()) -> int:
        """The next server: one that is up and was not tried yet, else one that is up, else the one down longest."""
        if len(self._health) == 1:
            return 0
        with self._lock:
            count = len(self._health)
            order = [(self._turn + step) % count for step in range(count)]
            up = [server for server in order if not self._health[server].rest_s]
            untried = [server for server in up or order if server not in tried]
            chosen = (untried or up or sorted(order, key=lambda server: self._health[server].rests_until))[0]
            self._turn = (chosen + 1) % count
            return chosen

    def answered(self, server: int) -> None:
        """The server answered a request, if only with a refusal."""
        self.any_answered = True
        self.mark_up(server)

    def mark_up(self, server: int) -> None:
        """The server is alive."""
        health = self._health[server]
        health.seen_at = self._clock()
        if health.rest_s:
            with self._lock:
                health.rest_s, health.probed = 0.0, False

    def mark_down(self, server: int) -> None:
        """The server could not be reached, or is silent, or is going away."""
        with self._lock:
            health = self._health[server]
            health.rest_s = min(max(2 * health.rest_s, FIRST_REST_S), LONGEST_REST_S)
            health.rests_until = self._clock() + health.rest_s
            health.probed = False

    def is_down(self, server: int) -> bool:
        """Whether the server is being left out."""
        return self._health[server].rest_s > 0

    def silent_s(self, server: int) -> float:
        """How long ago the server was last seen alive."""
        return self._clock() - self._health[server].seen_at

    def due_for_probe(self) -> list[int]:
        """Servers whose rest is over; each is returned to one caller only, who must report `mark_up` or `mark_down`."""
        if len(self._health) == 1:
            return []
        with self._lock:
            now = self._clock()
            due = [
                number
                for number, health in enumerate(self._health)
                if health.rest_s and not health.probed and now >= health.rests_until
            ]
            for number in due:
                self._health[number].probed = True
            return due
