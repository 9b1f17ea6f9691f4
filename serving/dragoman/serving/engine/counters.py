"""What the engine has done so far, as plain numbers: whoever serves it turns them into metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dragoman.serving.engine.running import Turn

__all__ = ["Counters", "Gauges"]


@dataclass(slots=True)
class Counters:
    """They only grow."""

    requests: Counter[str] = field(default_factory=Counter)
    """By outcome: ok, cancelled, deadline, failed, invalid, overloaded."""
    source_tokens: int = 0
    target_tokens: int = 0
    steps: int = 0
    """Turns of lanes; without threads each is one step."""
    step_s: float = 0.0
    lane_steps: int = 0
    decoded_rows: int = 0
    """Rows summed over the lanes' steps: over lane_steps, the mean batch."""
    encoder_calls: int = 0
    encoded_tokens: int = 0
    encoded_cells: int = 0
    """With padding: 1 - encoded_tokens / encoded_cells is wasted."""
    preemptions: int = 0

    def take(self, turn: Turn) -> None:
        """Count what a lane did in its turn."""
        self.steps += 1
        self.step_s += turn.seconds
        self.lane_steps += turn.steps
        self.decoded_rows += turn.rows * turn.steps
        for together in turn.encoded:
            self.encoder_calls += 1
            self.encoded_tokens += sum(ticket.source_tokens for ticket in together)
        self.encoded_cells += turn.encoded_cells


@dataclass(frozen=True, slots=True)
class Gauges:
    """How it stands now."""

    queued_requests: int
    queued_tokens: int
    running_requests: int
    running_rows: int
    max_rows: int
    calls_at_once: int
    """Lanes that may decode at the same time."""
    self_cells: int
    self_cells_limit: int
    cross_cells: int
    cross_cells_limit: int
    cells_in_use: int
    """Of both caches, those that hold a token: the others are padding."""
    sessions: int
