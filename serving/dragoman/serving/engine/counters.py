"""What the engine has done so far, as plain numbers; the engine process turns them into metrics."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.serving.engine.batch import Quantum

__all__ = ["Counters", "Gauges"]


@dataclass(slots=True)
class Counters:
    """Numbers that only grow."""

    quantum_s: float = 0.0
    steps: int = 0
    """Decoder steps of batches."""
    decoded_rows: int = 0
    """Rows summed over steps: over `steps`, the mean batch."""
    encoder_calls: int = 0
    encoded_tokens: int = 0
    encoded_slots: int = 0
    """With padding: 1 - encoded_tokens / encoded_slots is wasted."""
    preemptions: int = 0

    def take(self, quantum: Quantum) -> None:
        """Count what a batch did in its quantum."""
        self.quantum_s += quantum.seconds
        self.steps += quantum.steps
        self.decoded_rows += quantum.rows * quantum.steps
        self.encoder_calls += quantum.encoder_calls
        self.encoded_tokens += quantum.encoded_tokens
        self.encoded_slots += quantum.encoded_slots


@dataclass(frozen=True, slots=True)
class Gauges:
    """The current state."""

    queued_requests: int
    running_requests: int
    running_rows: int
    max_rows: int
    calls_at_once: int
    """Batches that may decode at the same time."""
    kv_slots_reserved: int
    """Of both caches, those that running sequences have reserved."""
    kv_slots_limit: int
    sessions: int
