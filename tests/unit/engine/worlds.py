"""An engine over the fake model, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import Engine, EngineLimits, Event, Finished, ModelFacts, Request, Started
from dragoman.serving.engine.runtime import Encoded
from dragoman.serving.runtime.fake import FakeLane, FakeRuntime

MODEL = ModelFacts(
    eos=0, decoder_start=22, source_vocabulary=23, target_vocabulary=23, max_source_tokens=20, max_target_tokens=20
)
LONG = DecodingOptions(max_length=15, min_length=15)
"""Fifteen steps, whatever the model says."""


class World:
    def __init__(self, limits: EngineLimits | None = None, runtime: FakeRuntime | None = None) -> None:
        self.now_s = 0.0
        self.runtime = runtime or FakeRuntime(MODEL.target_vocabulary)
        self.engine = Engine(self.runtime, MODEL, limits, clock=lambda: self.now_s)
        self.events: list[Event] = []
        self.started: list[str] = []

    def submit(self, name: str, source: Sequence[int] = (3, 4, 5), options: DecodingOptions = LONG, **more: object) -> None:
        self.engine.submit(Request(name, tuple(source), options, **more))

    def step(self, count: int = 1) -> list[Event]:
        new: list[Event] = []
        for _ in range(count):
            self.now_s += 1.0
            happened = self.engine.step()
            self.started += [event.request.id for event in happened if isinstance(event, Started)]
            new += [event for event in happened if not isinstance(event, Started)]
            self.engine.check()
        self.events += new
        return new

    def finish(self) -> dict[str, Finished]:
        for _ in range(1000):
            if not self.engine.busy:
                break
            self.step()
        assert not self.engine.busy
        return {event.request.id: event for event in self.events if isinstance(event, Finished)}

    @property
    def running(self) -> int:
        return self.engine.gauges().running_requests


class BrokenRuntime(FakeRuntime):
    """Fails when a source begins with 13, and in lanes of width 2."""

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        if any(source[0] == 13 for source in sources):
            raise RuntimeError("/secret/path: no such kernel")
        return super().encode(sources)

    def lane(self, width: int) -> FakeLane:
        lane = super().lane(width)
        if width == 2:
            lane.step = _broken  # type: ignore[method-assign]
        return lane


def _broken(*_: object) -> Hypothesis:
    raise RuntimeError("/secret/path: out of memory")
