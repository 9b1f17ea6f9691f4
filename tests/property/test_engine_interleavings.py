"""Whatever comes and goes, every request gets exactly one final answer, the one it gets alone, and no slot is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded
from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import Engine, EngineLimits, Event, Finished, ModelFacts, Progress, Request
from dragoman.serving.runtime.fake import FakeRuntime

MODEL = ModelFacts(
    eos=0, decoder_start=22, source_vocabulary=23, target_vocabulary=23, max_source_tokens=20, max_target_tokens=20
)
TIGHT = EngineLimits(
    max_rows=10,
    max_beam_size=4,
    max_queue_requests=6,
    encode_tokens_per_step=24,
    target_tokens_per_row=8,
    source_tokens_per_row=8,
)


@dataclass
class World:
    """An engine with a clock that only the test moves."""

    limits: EngineLimits
    spare_room_is_free: bool = True
    calls_at_once: int = 1
    rows_together: int = 0
    now_s: float = 0.0
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        runtime = FakeRuntime(
            MODEL.target_vocabulary,
            spare_room_is_free=self.spare_room_is_free,
            calls_at_once=self.calls_at_once,
            rows_together=self.rows_together,
        )
        self.engine = Engine(runtime, MODEL, self.limits, clock=lambda: self.now_s)

    def step(self) -> None:
        self.now_s += 1.0
        self.events += self.engine.step()
        self.engine.check()

    def finish(self) -> None:
        for _ in range(3000):
            if not self.engine.busy:
                return
            self.engine.wait()
            self.step()
        raise AssertionError("the engine does not come to an end")


@cache
def alone(source: tuple[int, ...], options: DecodingOptions) -> tuple[Hypothesis, ...]:
    world = World(EngineLimits())
    world.engine.submit(Request("alone", source, options))
    world.finish()
    (answer,) = (event for event in world.events if isinstance(event, Finished))
    assert answer.error is None
    return answer.hypotheses


@st.composite
def some_options(draw: st.DrawFn) -> DecodingOptions:
    width = draw(st.sampled_from([1, 1, 2, 4]))
    longest = draw(st.integers(1, 19))
    sampling = width == 1 and draw(st.booleans())
    return DecodingOptions(
        beam_size=width,
        num_hypotheses=draw(st.integers(1, width)),
        max_length=longest,
        min_length=draw(st.integers(0, min(longest, 16))),
        early_stopping=draw(st.sampled_from(["heuristic", "first", "never"])),
        no_repeat_ngram_size=draw(st.sampled_from([0, 0, 2])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.3])),
        bad_words=draw(st.sampled_from([(), ((22,),), ((22,), (3, 4))])),
        forced_eos=draw(st.sampled_from([None, 0])),
        prefix=draw(st.sampled_from([(), (), (5,), (6, 7, 8)])),
        sampling=sampling,
        top_k=draw(st.sampled_from([0, 5])),
        seed=draw(st.integers(0, 3)),
    )


SOURCES = st.lists(st.integers(0, 22), min_size=1, max_size=20).map(tuple)
PRIORITIES = st.sampled_from(["interactive", "batch"])
ARRIVAL = st.tuples(
    st.just("submit"),
    st.tuples(
        SOURCES, some_options(), st.sampled_from(["interactive", "batch"]), st.none() | st.integers(0, 12), st.booleans()
    ),
)
ACTIONS = st.lists(
    ARRIVAL | st.tuples(st.just("step"), st.integers(1, 4)) | st.tuples(st.just("cancel"), st.integers(0, 30)), max_size=40
)


@settings(max_examples=90, deadline=None)
@given(ACTIONS, st.booleans(), st.integers(1, 3), st.sampled_from([0, 4, 100]))
def test_every_request_gets_one_answer_and_it_is_its_own(
    actions: list, spare_room_is_free: bool, calls_at_once: int, rows_together: int
) -> None:
    world = World(TIGHT, spare_room_is_free, calls_at_once, rows_together)
    accepted: dict[str, Request] = {}
    cancelled: set[str] = set()
    for number, (kind, what) in enumerate(actions):
        if kind == "submit":
            source, options, priority, patience, stream = what
            deadline_s = None if patience is None else world.now_s + patience
            request = Request(f"r{number}", source, options, priority, deadline_s, stream)
            try:
                world.engine.submit(request)
            except (Overloaded, InvalidRequest):
                continue
            accepted[request.id] = request
        elif kind == "cancel":
            name = f"r{what}"
            if name in accepted and not any(isinstance(e, Finished) and e.request.id == name for e in world.events):
                cancelled.add(name)
            world.engine.cancel(name)
        else:
            for _ in range(what):
                world.step()
    world.finish()

    finished = [event for event in world.events if isinstance(event, Finished)]
    assert sorted(answer.request.id for answer in finished) == sorted(accepted)
    for answer in finished:
        request = answer.request
        if request.id in cancelled:
            assert isinstance(answer.error, (Cancelled, DeadlineExceeded))
        elif isinstance(answer.error, DeadlineExceeded):
            assert request.deadline_s is not None
        else:
            assert answer.error is None
            assert answer.hypotheses == alone(request.source, request.options)
            if request.stream:
                assert streamed(world.events, request) == answer.hypotheses[0].tokens
    world.engine.close()
    gauges = world.engine.gauges()
    assert (gauges.running_rows, gauges.queued_requests, gauges.queued_tokens) == (0, 0, 0)


def streamed(events: list[Event], request: Request) -> tuple[int, ...]:
    pieces = [event.tokens for event in events if isinstance(event, Progress) and event.request is request]
    return tuple(token for piece in pieces for token in piece)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SOURCES, some_options()), min_size=1, max_size=12), st.integers(1, 5))
def test_a_cancelled_request_is_gone_after_the_next_step_wherever_it_is(requests: list, steps: int) -> None:
    world = World(EngineLimits(max_rows=8, max_beam_size=4, encode_tokens_per_step=16))
    for number, (source, options) in enumerate(requests):
        world.engine.submit(Request(str(number), source, options))
    for _ in range(steps):
        world.step()
    ended = {event.request.id for event in world.events if isinstance(event, Finished)}
    running = {str(number) for number in range(len(requests))} - ended
    for name in running:
        world.engine.cancel(name)
    world.events.clear()
    world.step()
    assert {event.request.id for event in world.events} == running
    assert not world.engine.busy
