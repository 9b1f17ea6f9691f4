"""Admission, waiting, refusals, and how a sequence ends."""

from __future__ import annotations

import pytest
from worlds import LONG, MODEL, BrokenRuntime, SlowRuntime, World, name_of

from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded, ServerError
from dragoman.search import DecodingOptions
from dragoman.serving.engine import EngineLimits, Finished, Progress, Sequence
from fake_runtime import FakeRuntime


def test_requests_join_and_leave_while_others_run() -> None:
    world = World()
    world.submit("long")
    world.step(3)
    world.submit("short", options=DecodingOptions(max_length=2, min_length=2))
    done = [name_of(event) for event in world.step(2)]
    assert done == ["short"]
    assert world.running == 1


def test_a_deadline_ends_a_running_request_at_the_next_step() -> None:
    world = World()
    world.submit("late", deadline_s=3.5)
    world.step(3)
    (event,) = world.step()
    assert isinstance(event, Finished)
    assert isinstance(event.sequence.error, DeadlineExceeded)
    assert world.running == 0


def test_a_deadline_ends_a_queued_request_too() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1))
    world.submit("first")
    world.submit("queued", deadline_s=1.5)
    world.step()
    (event,) = world.step()
    assert (name_of(event), type(event.sequence.error)) == ("queued", DeadlineExceeded)


def test_a_sequence_can_be_submitted_once_only() -> None:
    world = World()
    world.submit("once", options=DecodingOptions(max_length=1))
    with pytest.raises(ServerError, match="once only"):
        world.engine.submit(world.sequences["once"])
    world.finish()
    with pytest.raises(ServerError, match="once only"):
        world.engine.submit(world.sequences["once"])


def test_cancelling_what_is_not_there_does_nothing() -> None:
    world = World()
    world.engine.cancel(Sequence((1,)))
    assert world.step() == []


def test_cancelling_twice_ends_once() -> None:
    world = World()
    world.submit("gone")
    world.step()
    world.cancel("gone")
    world.cancel("gone")
    (event,) = world.step(2)
    assert isinstance(event.sequence.error, Cancelled)


def test_interactive_requests_go_before_batch_ones() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1))
    world.submit("batch", priority="batch")
    world.submit("interactive")
    world.step()
    world.finish()
    assert [name_of(event) for event in world.events] == ["interactive", "batch"]


def test_batch_requests_are_not_starved_by_interactive_ones() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1))
    one = DecodingOptions(max_length=1)
    world.submit("batch", priority="batch", options=one)
    for number in range(40):
        world.submit(f"i{number}", options=one)
    world.finish()
    assert [name_of(event) for event in world.events].index("batch") == 8


def test_a_full_queue_refuses_at_once_with_a_hint_from_the_throughput() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=4))
    for number in range(4):
        world.submit(str(number), options=DecodingOptions(max_length=2, min_length=2))
    with pytest.raises(Overloaded, match="the queue is full \\(4 requests\\)") as first:
        world.submit("too many")
    assert first.value.retry_after_s == 0.5  # nothing is known yet
    world.step(7)  # two steps a request, a second each
    for number in range(4, 8):
        world.submit(str(number))
    with pytest.raises(Overloaded) as later:
        world.submit("too many")
    assert later.value.retry_after_s == pytest.approx(2.0)
    assert "too many" not in world.finish()


def test_the_room_in_the_queue_is_what_is_left_of_its_requests_and_of_its_tokens() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=8, max_queue_tokens=100))
    assert world.engine.queue_room(entering=3)[0] == 5
    world.submit("short", range(1, 11))
    assert world.engine.queue_room(entering=0)[0] == 7
    world.submit("long", range(1, 21))
    assert world.engine.queue_room(entering=0)[0] == 4  # as long as those that wait: 15 of the 70 tokens left each
    assert world.engine.queue_room(entering=9)[0] == 0


def test_the_queue_is_bounded_in_tokens_as_well() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1, max_queue_tokens=25))
    world.submit("a", range(1, 20))
    with pytest.raises(Overloaded, match="19 source tokens"):
        world.submit("b", range(1, 20))


REFUSED = {
    "no tokens": ((), LONG, "the source has no tokens"),
    "too long": ([1] * 21, LONG, "has 21 tokens, the model takes 20"),
    "unknown token": ([23], LONG, "outside the vocabulary of 23"),
    "negative token": ([-1], LONG, "outside the vocabulary of 23"),
    "too wide": ([1], DecodingOptions(beam_size=17), "beam_size=17 is more than this server allows"),
    "prefix too long": ([1], DecodingOptions(prefix=(1,) * 20), "a prefix of 20 tokens"),
    "prefix unknown": ([1], DecodingOptions(prefix=(99,)), "token id 99 is outside"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_never_run_is_refused_at_once(name: str) -> None:
    source, options, message = REFUSED[name]
    world = World()
    with pytest.raises(InvalidRequest, match=message):
        world.submit("x", source, options)
    assert not world.engine.busy


def test_a_graph_with_few_candidates_refuses_what_needs_more() -> None:
    world = World(runtime=FakeRuntime(MODEL.target_vocabulary, max_candidates=8))
    world.submit("fits", options=DecodingOptions(beam_size=4, max_length=3))
    with pytest.raises(InvalidRequest, match="more than the 8 best tokens"):
        world.submit("too wide", options=DecodingOptions(beam_size=5))
    with pytest.raises(InvalidRequest, match="more than the 8 best tokens"):
        world.submit("whole vocabulary", options=DecodingOptions(sampling=True, top_k=0))


def test_max_length_above_the_models_own_limit_is_lowered_to_it() -> None:
    world = World()
    world.submit("x", options=DecodingOptions(max_length=500, min_length=18, prefix=(1, 2)))
    answer = world.finish()["x"]
    assert len(answer.hypotheses[0].tokens) <= MODEL.max_target_tokens


def test_a_source_that_breaks_the_encoder_fails_alone() -> None:
    world = World(EngineLimits(encode_tokens_per_step=3), BrokenRuntime(MODEL.target_vocabulary))
    world.submit("good")
    world.submit("bad", (13, 1, 1))
    world.submit("also good")
    answers = world.finish()
    assert [answers[name].error for name in ("good", "also good")] == [None, None]
    assert isinstance(answers["bad"].error, ServerError)
    assert "secret" not in str(answers["bad"].error)


def test_a_batch_that_breaks_fails_its_own_sequences_only() -> None:
    world = World(runtime=BrokenRuntime(MODEL.target_vocabulary))
    world.submit("greedy")
    world.submit("beam", options=DecodingOptions(beam_size=2))
    answers = world.finish()
    assert answers["greedy"].error is None
    assert isinstance(answers["beam"].error, ServerError)
    assert "secret" not in str(answers["beam"].error)


def test_decoding_goes_on_while_a_long_queue_is_encoded_bit_by_bit() -> None:
    world = World(EngineLimits(encode_tokens_per_step=6))
    for number in range(20):
        world.submit(str(number), options=LONG)
    world.step()
    assert world.running == 2
    world.step()
    assert world.running == 4
    assert world.engine.counters.decoded_rows == 2 + 4


def test_large_models_encode_as_many_tokens_together_as_the_weights_are_worth_reading_for() -> None:
    runtime = SlowRuntime(MODEL.target_vocabulary, pads=False)
    world = runtime.world = World(EngineLimits(encode_tokens_per_step=1024), runtime)
    world.submit("the first tells how long it takes")
    world.finish()
    for number in range(20):
        world.submit(str(number), [1] * 20)
    world.step()
    assert world.running == 7  # those of 128 tokens, the last of them begun
    world.step()
    assert world.running == 14


def test_sources_of_similar_length_are_encoded_together() -> None:
    world = World(EngineLimits(encode_tokens_per_step=200))
    for number in range(12):
        world.submit(str(number), [1] * (3 if number % 2 else 18))
    world.step()
    counters = world.engine.counters
    assert counters.encoder_calls == 2
    assert counters.encoded_slots == counters.encoded_tokens


def test_sources_of_all_lengths_are_encoded_together_where_none_is_padded() -> None:
    runtime = FakeRuntime(MODEL.target_vocabulary, pads=False)
    world = World(EngineLimits(encode_tokens_per_step=200), runtime)
    for number in range(12):
        world.submit(str(number), [1] * (3 if number % 2 else 18))
    world.step()
    counters = world.engine.counters
    assert counters.encoder_calls == 1
    assert counters.encoded_slots == counters.encoded_tokens == 6 * 3 + 6 * 18


def test_the_first_token_and_the_queue_are_timed() -> None:
    world = World(EngineLimits(max_rows=1, max_beam_size=1))
    world.submit("first", options=DecodingOptions(max_length=4, min_length=4))
    world.submit("second", options=DecodingOptions(max_length=3, min_length=3, prefix=(5, 6)))
    second = world.finish()["second"].timings
    assert (second.queue_s, second.first_token_s, second.total_s, second.steps) == (5.0, 7.0, 9.0, 5)


def test_only_streaming_sequences_get_progress() -> None:
    world = World()
    world.submit("quiet")
    world.submit("streamed", stream=True)
    world.finish()
    pieces = [event for event in world.events if isinstance(event, Progress)]
    assert {name_of(piece) for piece in pieces} == {"streamed"}
    assert all(len(piece.tokens) == 1 for piece in pieces)


def test_the_latest_sequences_are_preempted_when_slots_run_short_and_all_still_end() -> None:
    """Nobody can know that they will be so long: they have reserved what a source of two tokens usually needs."""
    sources = [(3, number) for number in range(23)]
    roomy = World()
    for source in sources:
        roomy.submit(str(source), source, DecodingOptions(max_length=18))
    expected = {name: sequence.hypotheses for name, sequence in roomy.finish().items()}
    world = World(EngineLimits(max_rows=16, max_beam_size=2, target_tokens_per_row=8))
    for source in sources:
        world.submit(str(source), source, DecodingOptions(max_length=18))
    answers = {name: sequence.hypotheses for name, sequence in world.finish().items()}
    assert world.engine.counters.preemptions > 0
    assert answers == expected


def test_large_sequences_leave_rows_to_small_ones() -> None:
    world = World(EngineLimits(max_rows=32, max_beam_size=16))
    world.submit("small before")
    for number in range(8):
        world.submit(f"large {number}", options=DecodingOptions(beam_size=8, max_length=15, min_length=15))
    world.step()
    assert world.engine.gauges().running_rows == 24 + 1
    world.submit("small after", options=DecodingOptions(max_length=1))
    done = [name_of(event) for event in world.step(2)]
    assert done == ["small after"]
    assert all(sequence.error is None for sequence in world.finish().values())


def test_large_sequences_have_every_row_when_there_are_no_small_ones() -> None:
    world = World(EngineLimits(max_rows=32, max_beam_size=16))
    for number in range(8):
        world.submit(f"large {number}", options=DecodingOptions(beam_size=8, max_length=15, min_length=15))
    world.step()
    assert world.engine.gauges().running_rows == 32


def test_a_large_sequence_is_not_starved_by_small_ones() -> None:
    world = World(EngineLimits(max_rows=32, max_beam_size=32, max_queue_requests=400))
    small = DecodingOptions(max_length=4, min_length=4)
    for number in range(300):
        world.submit(f"small {number}", options=small)
    world.step(2)
    world.submit("large", options=DecodingOptions(beam_size=16, max_length=2))
    world.finish()
    order = [name_of(event) for event in world.events]
    assert order.index("large") < 150


def test_the_counters_add_up() -> None:
    world = World()
    world.submit("a", options=DecodingOptions(max_length=4, min_length=4))
    world.submit("b", options=DecodingOptions(max_length=2, min_length=2))
    world.finish()
    counters = world.engine.counters
    assert (counters.steps, counters.decoded_rows) == (4, 2 + 2 + 1 + 1)
