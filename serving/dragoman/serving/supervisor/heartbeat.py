"""Distinguishes a hung engine from a slow one by its answers to pings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PING_INTERVAL_S", "Heartbeat", "Pong"]

PING_INTERVAL_S = 0.25
_STEPS = 20
"""An engine may be silent for so many of its slowest recent steps, even where that exceeds the configured limit.

After a quiet time those had few rows; a full batch takes up to about twelve times as long as a single row."""


@dataclass(frozen=True, slots=True)
class Pong:
    """What an engine answers to a ping: how far its loop has come, and how long its slowest recent step took."""

    progress: int
    open_requests: int
    longest_step_s: float = 0.0

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Pong:
        return cls(int(raw["progress"]), int(raw["open_requests"]), float(raw.get("longest_step_s", 0.0)))


class Heartbeat:
    """Counts pings without an answer, and answers without progress while requests are open.

    Counted in pings and not in seconds, so that a supervisor that was itself suspended for a while reports no hang.
    """

    def __init__(self, hang_limit_s: float) -> None:
        self._hang_limit_s = hang_limit_s
        self._last = Pong(0, 0)
        self._unanswered = self._without_progress = 0

    @property
    def limit_s(self) -> float:
        """The longest silence of a healthy engine: the configured one, or several of its own steps if they are slow."""
        return max(self._hang_limit_s, _STEPS * self._last.longest_step_s)

    @property
    def is_hung(self) -> bool:
        pings = max(2, int(self.limit_s / PING_INTERVAL_S) - 1)  # the last one is given its interval to be answered
        return max(self._unanswered, self._without_progress) >= pings

    @property
    def is_regular(self) -> bool:
        """Has the engine answered within about a second?"""
        return self._unanswered * PING_INTERVAL_S < 1.0

    def ping_sent(self) -> None:
        self._unanswered += 1

    def interval_without_core(self) -> None:
        """Since the last ping the engine had no core to answer on: that time says nothing about it."""
        self._unanswered = max(self._unanswered - 1, 0)
        self._without_progress = max(self._without_progress - 1, 0)

    def pong_received(self, pong: Pong) -> None:
        self._unanswered = 0
        idle_or_moved = pong.open_requests == 0 or pong.progress != self._last.progress
        self._without_progress = 0 if idle_or_moved else self._without_progress + 1
        self._last = pong
