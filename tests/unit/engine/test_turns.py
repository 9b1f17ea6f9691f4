"""Sequences whose steps look at very many tokens take turns; all others go on beside them at every step."""

from __future__ import annotations

import pytest
from worlds import MODEL, World

from dragoman.search import DecodingOptions
from dragoman.serving.engine import EngineLimits
from dragoman.serving.engine.runtime import TopTokens
from fake_runtime import FakeDecoder, FakeRuntime, Ids

PHRASES = tuple(((token, token + 1),) for token in range(1, 7))
COSTLY = DecodingOptions(beam_size=2, phrases=PHRASES, max_length=18, min_length=17)
"""Looks at 2 * (4 + 6) tokens in a step."""
PLAIN = DecodingOptions(max_length=15, min_length=15)
LIMITS = EngineLimits(max_rows=32, max_beam_size=4, row_candidates=4)  # 128 candidates in a step


class WatchedRuntime(FakeRuntime):
    """Remembers the sequences of each call of a decoder since it was last asked, by width."""

    def __init__(self) -> None:
        super().__init__(MODEL.target_vocabulary)
        self.calls: list[tuple[int, int]] = []  # width, sequences

    def decoder(self, width: int, sequences: int) -> FakeDecoder:
        return WatchedDecoder(self, width)


class WatchedDecoder(FakeDecoder):
    def step(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int) -> TopTokens:
        self._watched.calls.append((self.width, len(tokens)))
        return super().step(tokens, positions, parents, candidates)

    def step_scoring(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int, scored_tokens: Ids) -> TopTokens:
        self._watched.calls.append((self.width, len(tokens)))
        return super().step_scoring(tokens, positions, parents, candidates, scored_tokens)

    @property
    def _watched(self) -> WatchedRuntime:
        assert isinstance(self._runtime, WatchedRuntime)
        return self._runtime


def calls_by_step(world: World, runtime: WatchedRuntime) -> list[list[tuple[int, int]]]:
    """Until nothing is left to do."""
    found = []
    while world.engine.busy:
        runtime.calls.clear()
        world.step()
        found.append(list(runtime.calls))
    return found


def test_a_step_considers_a_bounded_number_of_tokens_and_leaves_out_no_other_sequence() -> None:
    runtime = WatchedRuntime()
    world = World(LIMITS, runtime)
    world.submit("plain", options=PLAIN)
    for number in range(11):
        world.submit(f"costly {number}", (3, 4, number), COSTLY)
    steps = calls_by_step(world, runtime)
    assert all(sum(width == 2 for width, _ in calls) <= 1 for calls in steps)
    assert max(count for calls in steps for width, count in calls if width == 2) == 128 // 20
    assert [(1, 1) in calls for calls in steps[:15]] == [True] * 15
    assert world.sequences["plain"].steps == 15
    assert not any(batch.takes_turns for batch in world.engine._scheduler.batches)


def test_those_that_take_turns_go_on_equally_fast() -> None:
    runtime = WatchedRuntime()
    world = World(LIMITS, runtime)
    for number in range(11):
        world.submit(f"costly {number}", (3, 4, number), COSTLY)
    world.step(20)
    taken = [batch._steps for batch in world.engine._scheduler.batches if batch.takes_turns]
    assert len(taken) == 2
    assert max(taken) - min(taken) <= 2  # one began a step later


@pytest.mark.parametrize(
    "options",
    [
        COSTLY,
        DecodingOptions(beam_size=2, bad_words=tuple((token,) for token in range(1, 7))),
        DecodingOptions(beam_size=2, repetition_penalty=1.2),
        DecodingOptions(beam_size=2, no_repeat_ngram_size=1),
        DecodingOptions(sampling=True, top_k=0),
        DecodingOptions(sampling=True, top_k=9),
    ],
)
def test_searches_that_consider_many_tokens_take_turns(options: DecodingOptions) -> None:
    world = World(LIMITS)
    world.submit("costly", options=options)
    world.submit("plain", options=DecodingOptions(beam_size=options.beam_size))
    assert [sequence.takes_turns for sequence in world.sequences.values()] == [True, False]
    assert all(sequence.error is None for sequence in world.finish().values())


def test_answers_are_the_same_in_turns_and_alone() -> None:
    alone, together = {}, World(LIMITS)
    for number in range(9):
        world = World()
        for each in (world, together):
            each.submit(f"{number}", (number, 5), COSTLY)
        alone |= world.finish()
    assert {name: one.hypotheses for name, one in together.finish().items()} == {
        name: one.hypotheses for name, one in alone.items()
    }


def test_a_sequence_that_needs_more_than_a_step_may_consider_has_its_turn_alone() -> None:
    runtime = WatchedRuntime()
    world = World(EngineLimits(max_rows=8, max_beam_size=4, row_candidates=4), runtime)
    for number in range(3):
        world.submit(f"{number}", (3, number), DecodingOptions(beam_size=2, phrases=PHRASES * 5, max_length=15))
    steps = calls_by_step(world, runtime)
    assert {call for calls in steps for call in calls} == {(2, 1)}
    assert all(len(calls) <= 1 for calls in steps)
