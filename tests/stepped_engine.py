"""An engine that a test steps, and what holds in it between any two steps."""

from __future__ import annotations

from typing import Any

from dragoman.errors import InvalidRequest, Overloaded
from dragoman.serving.engine import Engine, EngineLimits, Event, Finished, ModelFacts, Sequence
from dragoman.serving.engine.batch import DecodingBatch
from dragoman.serving.engine.runtime import Runtime

__all__ = ["SteppedEngine", "check_invariants"]


class SteppedEngine:
    """An engine with a clock that only the test moves: a second a step."""

    def __init__(self, runtime: Runtime, model: ModelFacts, limits: EngineLimits) -> None:
        self.now_s = 0.0
        self.events: list[Event] = []
        self.engine = Engine(runtime, model, limits, clock=lambda: self.now_s)

    def step(self) -> None:
        self.now_s += 1.0
        self.events += self.engine.step()
        check_invariants(self.engine)

    def finish(self) -> None:
        for _ in range(3000):
            if not self.engine.busy:
                return
            self.engine.wait()
            self.step()
        raise AssertionError("the engine does not come to an end")

    def play(self, actions: list[Any]) -> tuple[set[Sequence], set[Sequence]]:
        """Submit, cancel and step as listed, then to the end; the sequences that were accepted, and those cancelled early.

        ("submit", (source, options, priority, patience[, stream])), ("cancel", number of a submission), ("step", count).
        """
        accepted: dict[int, Sequence] = {}
        cancelled: set[Sequence] = set()
        for number, (kind, what) in enumerate(actions):
            if kind == "submit":
                source, options, priority, patience, *stream = what
                deadline_s = None if patience is None else self.now_s + patience
                sequence = Sequence(
                    source, options, priority=priority, deadline_s=deadline_s, stream=any(stream), owner=options
                )
                try:
                    self.engine.submit(sequence)
                except (Overloaded, InvalidRequest):
                    continue
                accepted[number] = sequence
            elif kind == "cancel":
                if (found := accepted.get(what)) is not None:
                    if found.ended_s is None:
                        cancelled.add(found)
                    self.engine.cancel(found)
            else:
                for _ in range(what):
                    self.step()
        self.finish()
        finished = [event.sequence for event in self.events if isinstance(event, Finished)]
        assert len(finished) == len(accepted), "one answer each"
        assert set(finished) == set(accepted.values())
        return set(finished), cancelled


def check_invariants(engine: Engine) -> None:
    """No sequence is lost or in two places, and no more slots are reserved than promised."""
    scheduler = engine._scheduler
    running = [sequence for batch in scheduler.batches for sequence in batch.sequences]
    assert len(running) + len(scheduler.waiting) + len(engine._forced) == len(engine._active)
    assert len(set(running)) == len(running)
    for batch in scheduler.idle_batches():
        check_batch(batch)
    assert scheduler.reserved_slots().fit(scheduler.slots_limit)


def check_batch(batch: DecodingBatch) -> None:
    """Search and sequences are the same."""
    joined = len(batch.sequences) - sum(map(len, batch._newcomers))
    assert len(batch._search) == joined
    for index, sequence in enumerate(batch.sequences[:joined]):
        assert batch._search.options(index) is sequence.options
