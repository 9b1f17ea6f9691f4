"""Whatever comes and goes, every request gets exactly one final answer, the one it gets alone, and no slot is lost."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import Cancelled, DeadlineExceeded
from dragoman.search import DecodingOptions, Hypothesis
from dragoman.serving.engine import EngineLimits, Event, ModelFacts, Progress, Sequence
from fake_runtime import FakeRuntime
from pretend_words import WORDS
from stepped_engine import SteppedEngine

MODEL = ModelFacts(
    ends=(0,),
    decoder_start=22,
    source_vocabulary=23,
    target_vocabulary=23,
    max_source_tokens=20,
    max_target_tokens=20,
    words=WORDS,
)
TIGHT = EngineLimits(
    max_rows=10,
    max_beam_size=4,
    max_queue_requests=6,
    encode_tokens_per_step=24,
    target_tokens_per_row=8,
    source_tokens_per_row=8,
    row_candidates=5,  # so that some take turns
)


def fake_world(limits: EngineLimits, pads: bool = True, calls_at_once: int = 1, rows_together: int = 0) -> SteppedEngine:
    runtime = FakeRuntime(MODEL.target_vocabulary, pads=pads, calls_at_once=calls_at_once, rows_together=rows_together)
    return SteppedEngine(runtime, MODEL, limits)


@cache
def alone(source: tuple[int, ...], options: DecodingOptions) -> tuple[Hypothesis, ...]:
    world = fake_world(EngineLimits())
    sequence = Sequence(source, options)
    world.engine.submit(sequence)
    world.finish()
    assert sequence.error is None
    return sequence.hypotheses


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
        phrases=draw(st.sampled_from([(), (((9, 2),),), (((4,), (5, 6)), ((7,),))])) if width > 1 else (),
        terms=draw(st.sampled_from([(), (((4, 8),), ((9,), (12, 7)))])) if width > 1 else (),
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
def test_every_sequence_gets_one_answer_and_it_is_its_own(
    actions: list, pads: bool, calls_at_once: int, rows_together: int
) -> None:
    world = fake_world(TIGHT, pads, calls_at_once, rows_together)
    finished, cancelled = world.play(actions)
    for sequence in finished:
        if sequence in cancelled:
            assert isinstance(sequence.error, (Cancelled, DeadlineExceeded))
        elif isinstance(sequence.error, DeadlineExceeded):
            assert sequence.deadline_s is not None
        else:
            assert sequence.error is None
            assert sequence.hypotheses == alone(sequence.source, sequence.owner)
            if sequence.stream:
                assert streamed(world.events, sequence) == sequence.hypotheses[0].tokens
    world.engine.close()
    gauges = world.engine.gauges()
    assert (gauges.running_rows, gauges.queued_requests, gauges.kv_slots_reserved) == (0, 0, 0)


def streamed(events: list[Event], sequence: Sequence) -> tuple[int, ...]:
    pieces = [event.tokens for event in events if isinstance(event, Progress) and event.sequence is sequence]
    return tuple(token for piece in pieces for token in piece)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SOURCES, some_options()), min_size=1, max_size=12), st.integers(1, 5))
def test_a_cancelled_sequence_is_gone_after_the_next_step_wherever_it_is(requests: list, steps: int) -> None:
    world = fake_world(EngineLimits(max_rows=8, max_beam_size=4, encode_tokens_per_step=16))
    sequences = [Sequence(source, options) for source, options in requests]
    for sequence in sequences:
        world.engine.submit(sequence)
    for _ in range(steps):
        world.step()
    running = {sequence for sequence in sequences if sequence.ended_s is None}
    for sequence in running:
        world.engine.cancel(sequence)
    world.events.clear()
    world.step()
    assert {event.sequence for event in world.events} == running
    assert not world.engine.busy
