"""How long to wait before a process is started again."""

from __future__ import annotations

__all__ = ["Backoff"]


class Backoff:
    """Counts failed starts in a row. A process that was running and died is started again at once."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 5.0) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._failed_starts = 0

    @property
    def delay_s(self) -> float:
        """0 unless the last start failed; then twice as long after each further failure."""
        if not self._failed_starts:
            return 0.0
        doublings = min(self._failed_starts - 1, 32)
        return float(min(self._first_s * 2**doublings, self._longest_s))

    def start_failed(self) -> None:
        self._failed_starts += 1

    def start_succeeded(self) -> None:
        self._failed_starts = 0
