"""An engine over the fake model, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import Engine, EngineLimits, Event, Finished, ModelFacts, Progress
from dragoman.serving.engine import Sequence as EngineSequence
from dragoman.serving.engine.runtime import Encoded
from fake_runtime import FakeDecoder, FakeRuntime
from stepped_engine import check_invariants

MODEL = ModelFacts(
    ends=(0,), decoder_start=22, source_vocabulary=23, target_vocabulary=23, max_source_tokens=20, max_target_tokens=20
)
PATIENCE_S = 20.0
LONG = DecodingOptions(max_length=15, min_length=15)
"""Fifteen steps, whatever the model generates."""


def name_of(event: Progress | Finished) -> str:
    return str(event.sequence.owner)


class World:
    def __init__(self, limits: EngineLimits | None = None, runtime: FakeRuntime | None = None) -> None:
        self.now_s = 0.0
        self.runtime = runtime or FakeRuntime(MODEL.target_vocabulary)
        self.engine = Engine(self.runtime, MODEL, limits, clock=lambda: self.now_s)
        self.events: list[Event] = []
        self.sequences: dict[str, EngineSequence] = {}

    def submit(self, name: str, source: Sequence[int] = (3, 4, 5), options: DecodingOptions = LONG, **more: object) -> None:
        sequence = EngineSequence(tuple(source), options, owner=name, **more)
        self.engine.submit(sequence)
        self.sequences[name] = sequence

    def cancel(self, name: str) -> None:
        self.engine.cancel(self.sequences[name])

    def step(self, count: int = 1) -> list[Event]:
        new: list[Event] = []
        for _ in range(count):
            self.now_s += 1.0
            new += self.engine.step()
            check_invariants(self.engine)
        self.events += new
        return new

    def finish(self) -> dict[str, EngineSequence]:
        for _ in range(1000):
            if not self.engine.busy:
                break
            self.step()
        assert not self.engine.busy
        return {name_of(event): event.sequence for event in self.events if isinstance(event, Finished)}

    @property
    def running(self) -> int:
        return self.engine.gauges().running_requests


class BrokenRuntime(FakeRuntime):
    """Fails when a source begins with 13, and in batches of width 2."""

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        if any(source[0] == 13 for source in sources):
            raise RuntimeError("/secret/path: no such kernel")
        return super().encode(sources)

    def decoder(self, width: int, sequences: int) -> FakeDecoder:
        decoder = super().decoder(width, sequences)
        if width == 2:
            decoder.step = _broken  # type: ignore[method-assign]
        return decoder


class SlowRuntime(FakeRuntime):
    """A source takes a second a token to encode, on the clock of `world`."""

    world: World

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        self.world.now_s += sum(map(len, sources))
        return super().encode(sources)


def _broken(*_: object) -> Hypothesis:
    raise RuntimeError("/secret/path: out of memory")
