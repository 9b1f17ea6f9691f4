"""What was measured: counts and histograms, one row a slice of time, mergeable over processes.

A request belongs to the slice in which it was *due*, whenever it was answered: a server that stalls for a second
shows as one second of long latencies, not as a gap. Only what measures output (answers, tokens) is counted in the slice
in which it came out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dragoman.loadtest.histogram import Histogram
from dragoman.loadtest.sender import Outcome

__all__ = ["Slice", "Tally", "slice_length_s"]

_MOST_SLICES = 300
_FEWEST_SLICES = 30


def slice_length_s(duration_s: float) -> float:
    """One second, unless the run is so short or so long that this would be too few or too many slices."""
    return max(min(1.0, duration_s / _FEWEST_SLICES), duration_s / _MOST_SLICES)


@dataclass(slots=True)
class Slice:
    """One slice of time."""

    due: int = 0
    answered: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=Histogram)

    def add(self, other: Slice) -> None:
        self.due += other.due
        self.answered += other.answered
        self.source_tokens += other.source_tokens
        self.target_tokens += other.target_tokens
        self.errors += other.errors
        self.latency.add(other.latency)


@dataclass(slots=True)
class Tally:
    """All slices of a run, and what needs no time axis. Times given to it count from the start of the measurement."""

    duration_s: float
    slice_s: float
    slices: dict[int, Slice] = field(default_factory=dict)
    first_token: Histogram = field(default_factory=Histogram)
    per_token: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)
    lag: Histogram = field(default_factory=Histogram)
    errors: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    target_lengths: dict[int, int] = field(default_factory=dict)
    """How many requests had so many target tokens: what `dragoman plan` simulates with."""
    held_back: int = 0
    """Requests of an open loop that left late because too many were open: the server was behind, not the client."""

    def record(self, due_at: float, outcome: Outcome, started_at: float) -> None:
        """Count one outcome; what was due before the measurement (warm-up) only counts as output."""
        due_s, finished_s = due_at - started_at, outcome.finished_at - started_at
        if outcome.error is None:
            self._record_output(finished_s, outcome)
        if not 0 <= due_s < self.duration_s:
            return
        slot = self._slice(due_s)
        slot.due += 1
        if outcome.error is not None:
            slot.errors += 1
            self.errors[outcome.error] = self.errors.get(outcome.error, 0) + 1
            self.examples.setdefault(outcome.error, outcome.message)
            return
        slot.latency.record(finished_s - due_s)
        self.target_lengths[outcome.target_tokens] = self.target_lengths.get(outcome.target_tokens, 0) + 1
        if outcome.queue_s is not None:
            self.queue.record(outcome.queue_s)
        if outcome.first_token_at is not None:
            self.first_token.record(outcome.first_token_at - due_at)
            if outcome.target_tokens > 1:
                self.per_token.record((outcome.finished_at - outcome.first_token_at) / (outcome.target_tokens - 1))

    def add(self, other: Tally) -> None:
        for index, slot in other.slices.items():
            self.slices.setdefault(index, Slice()).add(slot)
        for mine, theirs in zip(self._histograms(), other._histograms(), strict=True):
            mine.add(theirs)
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
            self.examples.setdefault(kind, other.examples[kind])
        for length, count in other.target_lengths.items():
            self.target_lengths[length] = self.target_lengths.get(length, 0) + count
        self.held_back += other.held_back

    @property
    def latency(self) -> Histogram:
        """The latencies of the whole run."""
        whole = Histogram()
        for slot in self.slices.values():
            whole.add(slot.latency)
        return whole

    def ordered(self) -> list[Slice]:
        """Every slice of the run, empty ones too; the last may be short."""
        count = max(self.slices, default=-1) + 1
        return [self.slices.get(index, Slice()) for index in range(count)]

    def cut_at(self, elapsed_s: float) -> None:
        """The run ended early: what follows is not part of the measurement."""
        self.duration_s = min(self.duration_s, elapsed_s)

    def _record_output(self, finished_s: float, outcome: Outcome) -> None:
        if 0 <= finished_s < self.duration_s:
            slot = self._slice(finished_s)
            slot.answered += 1
            slot.source_tokens += outcome.source_tokens
            slot.target_tokens += outcome.target_tokens

    def _slice(self, at_s: float) -> Slice:
        return self.slices.setdefault(int(at_s / self.slice_s), Slice())

    def _histograms(self) -> tuple[Histogram, ...]:
        return self.first_token, self.per_token, self.queue, self.lag

    def to_json(self) -> dict[str, object]:
        return {
            "duration_s": self.duration_s,
            "slice_s": self.slice_s,
            "slices": [
                {
                    "due": slot.due,
                    "answered": slot.answered,
                    "source_tokens": slot.source_tokens,
                    "target_tokens": slot.target_tokens,
                    "errors": slot.errors,
                    "latency": slot.latency.to_json(),
                }
                for slot in self.ordered()
            ],
            "first_token": self.first_token.to_json(),
            "per_token": self.per_token.to_json(),
            "queue": self.queue.to_json(),
            "lag": self.lag.to_json(),
            "errors": self.errors,
            "examples": self.examples,
            "target_lengths": sorted(self.target_lengths.items()),
            "held_back": self.held_back,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Tally:
        tally = Tally(float(raw["duration_s"]), float(raw["slice_s"]))
        for index, slot in enumerate(raw["slices"]):
            tally.slices[index] = Slice(
                int(slot["due"]),
                int(slot["answered"]),
                int(slot["source_tokens"]),
                int(slot["target_tokens"]),
                int(slot["errors"]),
                Histogram.from_json(slot["latency"]),
            )
        tally.first_token = Histogram.from_json(raw["first_token"])
        tally.per_token = Histogram.from_json(raw["per_token"])
        tally.queue = Histogram.from_json(raw["queue"])
        tally.lag = Histogram.from_json(raw["lag"])
        tally.errors = {str(kind): int(count) for kind, count in raw["errors"].items()}
        tally.examples = {str(kind): str(message) for kind, message in raw["examples"].items()}
        tally.target_lengths = {int(length): int(count) for length, count in raw.get("target_lengths", ())}
        tally.held_back = int(raw.get("held_back", 0))
        return tally
