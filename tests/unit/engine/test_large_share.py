"""Large sequences leave KV slots to small ones, also those that they have grown into."""

from __future__ import annotations

import dataclasses

from worlds import MODEL

from dragoman.search import DecodingOptions
from dragoman.serving.engine import EngineLimits, Sequence
from fake_runtime import FakeRuntime
from stepped_engine import SteppedEngine

LIMITS = EngineLimits(max_rows=16, max_beam_size=3, target_tokens_per_row=16)
ENDLESS = dataclasses.replace(MODEL, max_target_tokens=128, ends=())
"""Nobody can know that its targets will be so long: sequences reserve slots as they grow."""
LARGE = DecodingOptions(beam_size=3, max_length=64)
SMALL = DecodingOptions(max_length=10)


def begun(large: int) -> tuple[SteppedEngine, list[Sequence]]:
    """An engine whose slots are all taken by large sequences."""
    stepped = SteppedEngine(FakeRuntime(MODEL.target_vocabulary, pads=False), ENDLESS, LIMITS)
    sequences = [Sequence((3, 4, number), LARGE) for number in range(large)]
    for sequence in sequences:
        stepped.engine.submit(sequence)
    scheduler = stepped.engine._scheduler
    while scheduler.reserved_slots().own < scheduler.slots_limit.own:
        assert stepped.engine.busy
        stepped.step()
    return stepped, sequences


def submit_small(stepped: SteppedEngine) -> Sequence:
    small = Sequence((7, 8, 9), SMALL)
    stepped.engine.submit(small)
    return small


def test_a_small_sequence_does_not_wait_for_large_ones_that_hold_every_slot() -> None:
    stepped, large = begun(2)
    small = submit_small(stepped)
    stepped.finish()
    assert small.ended_s is not None
    assert large[1].ended_s is not None
    assert small.ended_s < large[1].ended_s
    assert stepped.engine.counters.preemptions > 0


def test_a_large_sequence_that_gave_its_slots_back_generates_the_same() -> None:
    stepped, large = begun(3)
    for _ in range(5):
        submit_small(stepped)
        stepped.step()
    stepped.finish()
    for sequence in large:
        alone = Sequence(sequence.source, LARGE)
        engine = SteppedEngine(FakeRuntime(MODEL.target_vocabulary, pads=False), ENDLESS, LIMITS)
        engine.engine.submit(alone)
        engine.finish()
        assert sequence.hypotheses == alone.hypotheses


def test_large_sequences_keep_their_slots_when_no_small_one_is_expected() -> None:
    stepped, _ = begun(2)
    stepped.finish()
    assert stepped.engine.counters.preemptions == 0


def test_small_ones_without_end_do_not_starve_a_large_one() -> None:
    stepped, (first, *_) = begun(2)
    for _ in range(200):
        submit_small(stepped)
        stepped.step()
        if first.ended_s is not None:
            return
    raise AssertionError("the first large sequence does not end")
