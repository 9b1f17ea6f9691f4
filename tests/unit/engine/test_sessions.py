"""Client-driven decoding: rows come from the caller, caches stay, bounded in number, slots and time."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import LONG, MODEL, World

from client_driven import open_session, step_session
from dragoman.errors import InvalidRequest, Overloaded, SessionLost
from dragoman.serving.engine import EngineLimits, Finished, OpenSession, SessionReply, StepSession, session
from dragoman.serving.engine.runtime import TopTokens

START = MODEL.decoder_start


def rows(*triples: tuple[int, int, int]) -> np.ndarray:
    return np.array(triples, np.int32)


class OpenOnes:
    """The sessions of an engine, one call after the other."""

    def __init__(self, world: World) -> None:
        self._engine = world.engine

    def open(self, sources: list[list[int]]) -> str:
        return open_session(self._engine, sources)

    def step(self, name: str, step: np.ndarray, candidates: int) -> TopTokens:
        return step_session(self._engine, name, step, candidates)

    def close(self, name: str) -> None:
        self._engine.sessions.close(name)

    def __len__(self) -> int:
        return len(self._engine.sessions)


def sessions(limits: EngineLimits | None = None) -> tuple[OpenOnes, World]:
    world = World(limits)
    return OpenOnes(world), world


def said(sources: list[list[int]], steps: list[np.ndarray]) -> np.ndarray:
    """Best tokens of the last of `steps`."""
    open_ones, _ = sessions()
    name = open_ones.open(sources)
    best = [open_ones.step(name, step, 3) for step in steps]
    return best[-1].tokens.copy()


def test_rows_follow_their_parents() -> None:
    first = rows((0, -1, START), (0, -1, START))
    second = rows((0, 0, 5), (0, 0, 6))
    crossed = said([[1, 2]], [first, second, rows((0, 1, 7), (0, 0, 8))])
    straight = said([[1, 2]], [first, rows((0, 0, 6), (0, 0, 5)), rows((0, 0, 7), (0, 1, 8))])
    np.testing.assert_array_equal(crossed, straight)


def test_a_source_may_be_left_out_and_the_others_go_on() -> None:
    three = [[1, 2], [3], [4, 5, 6]]
    first = rows((0, -1, START), (1, -1, START), (2, -1, START))
    together = said(three, [first, rows((0, 0, 7), (2, 2, 8)), rows((2, 1, 9))])
    alone = said([[4, 5, 6]], [rows((0, -1, START)), rows((0, 0, 8)), rows((0, 0, 9))])
    np.testing.assert_array_equal(together, alone)


def test_a_source_may_change_its_width() -> None:
    grown = said(
        [[1, 2], [3]],
        [rows((0, -1, START), (1, -1, START)), rows((0, 0, 5), (0, 0, 6), (1, 1, 4)), rows((0, 1, 7), (1, 2, 8), (1, 2, 9))],
    )
    assert grown[0].tolist() == said([[1, 2]], [rows((0, -1, START)), rows((0, 0, 6)), rows((0, 0, 7))])[0].tolist()
    assert grown[2].tolist() == said([[3]], [rows((0, -1, START)), rows((0, 0, 4)), rows((0, 0, 9))])[0].tolist()


BAD = {
    "unknown source": ([rows((7, -1, START))], "source 7 of the step is unknown"),
    "source not side by side": ([rows((0, -1, 1), (1, -1, 1), (0, -1, 1))], "source 0 of the step is unknown, done, or not"),
    "unknown token": ([rows((0, -1, 23))], "outside the vocabulary of 23"),
    "parent of another source": (
        [rows((0, -1, 1), (1, -1, 1)), rows((0, 1, 1))],
        "a parent of source 0 is not one of its rows",
    ),
    "no parent": ([rows((0, -1, 1)), rows((0, -1, 1))], "a parent of source 0 is not one of its rows"),
    "a source that was left out": ([rows((0, -1, 1)), rows((1, 0, 1))], "source 1 of the step is unknown, done"),
    "too many rows": ([rows(*[(0, -1, 1)] * 65)], "65 rows in a step"),
    "no rows": ([np.zeros((0, 3), np.int32)], "0 rows in a step"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_step_that_makes_no_sense_is_refused_and_harms_nothing(name: str) -> None:
    steps, message = BAD[name]
    open_ones, _ = sessions()
    opened = open_ones.open([[1, 2], [3]])
    for step in steps[:-1]:
        open_ones.step(opened, step, 2)
    with pytest.raises(InvalidRequest, match=message):
        open_ones.step(opened, steps[-1], 2)
    good = rows((0, 0 if steps[:-1] else -1, 5))
    assert open_ones.step(opened, good, 2).tokens.shape == (1, 2)


def test_the_models_limit_ends_a_session() -> None:
    open_ones, _ = sessions()
    name = open_ones.open([[1]])
    for step in range(MODEL.max_target_tokens):
        open_ones.step(name, rows((0, 0 if step else -1, 5)), 1)
    with pytest.raises(InvalidRequest, match="the model's limit of 20 target tokens"):
        open_ones.step(name, rows((0, 0, 5)), 1)


def test_candidates_are_bounded() -> None:
    open_ones, _ = sessions()
    name = open_ones.open([[1]])
    for candidates in (0, 24):
        with pytest.raises(InvalidRequest, match="must be between 1 and 23"):
            open_ones.step(name, rows((0, -1, 5)), candidates)


def test_the_candidates_of_all_rows_are_bounded() -> None:
    open_ones, _ = sessions(EngineLimits(max_step_candidates=5))
    name = open_ones.open([[1], [2]])
    two = rows((0, -1, 5), (1, -1, 5))
    with pytest.raises(InvalidRequest, match="6 candidates of all rows together; a step gives 5"):
        open_ones.step(name, two, 3)
    assert open_ones.step(name, two, 2).tokens.shape == (2, 2)


def test_the_candidates_of_open_steps_are_bounded() -> None:
    open_ones, world = sessions(EngineLimits(max_step_candidates=5))
    one, other = (open_ones.open([[1]]) for _ in range(2))
    world.engine.sessions.submit(StepSession(one, rows((0, -1, 5)), 5))
    with pytest.raises(Overloaded, match="very many candidates"):
        world.engine.sessions.submit(StepSession(other, rows((0, -1, 5)), 1))


def test_an_idle_session_is_forgotten() -> None:
    open_ones, world = sessions(EngineLimits(session_idle_timeout_s=5.0))
    name = open_ones.open([[1]])
    world.step(4)
    open_ones.step(name, rows((0, -1, 5)), 1)
    world.step(5)
    assert len(open_ones) == 1
    world.step(2)
    with pytest.raises(SessionLost):
        open_ones.step(name, rows((0, 0, 5)), 1)


def test_a_closed_session_is_gone_and_may_be_closed_again() -> None:
    open_ones, _ = sessions()
    name = open_ones.open([[1]])
    open_ones.close(name)
    open_ones.close(name)
    with pytest.raises(SessionLost):
        open_ones.step(name, rows((0, -1, 5)), 1)


def test_only_so_many_sessions_may_be_open() -> None:
    open_ones, _ = sessions(EngineLimits(max_sessions=2))
    names = [open_ones.open([[1]]) for _ in range(2)]
    with pytest.raises(Overloaded):
        open_ones.open([[1]])
    open_ones.close(names[0])
    assert open_ones.open([[1]]) != names[0]


def test_sessions_share_a_bounded_cache() -> None:
    open_ones, _ = sessions(EngineLimits(max_session_rows=4, target_tokens_per_row=8))
    greedy, wide = open_ones.open([[1]]), open_ones.open([[2]])
    open_ones.step(wide, rows(*[(0, -1, START)] * 3), 1)
    open_ones.step(greedy, rows((0, -1, START)), 1)
    other = open_ones.open([[3]])
    with pytest.raises(Overloaded, match="the caches of client-driven sessions are full"):
        open_ones.step(other, rows((0, -1, START)), 1)
    open_ones.close(wide)
    open_ones.step(other, rows((0, -1, START)), 1)


def test_batches_decode_between_the_slices_of_a_call() -> None:
    """A source that changes its width is fed again: as many calls of the model as it has tokens."""
    _, world = sessions()
    name = open_session(world.engine, [[1, 2]])
    for step in range(10):
        step_session(world.engine, name, rows((0, 0 if step else -1, 5)), 1)
    world.submit("beside", options=LONG)
    world.engine.sessions.submit(StepSession(name, rows((0, 0, 6), (0, 0, 7)), 1))
    kinds = [type(event) for _ in range(15) for event in world.step()]
    assert kinds == [SessionReply, Finished]
    assert world.engine.counters.steps == 15


def test_a_step_with_very_many_candidates_is_several_calls_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_of(candidates: list[int]) -> tuple[TopTokens, list[int]]:
        _, world = sessions()
        name = open_session(world.engine, [[1, 2], [3], [4, 5, 6], [7], [8]])
        for step, count in enumerate(candidates):
            fed = rows(*((source, source if step else -1, 3 + source + step) for source in range(5)))
            top = step_session(world.engine, name, fed, count)
        return top, [len(each.sources) for each in world.engine.sessions._open[name]._decoders]

    expected, together = last_of([1, 1, 6, 6])
    monkeypatch.setattr(session, "_CALL_CANDIDATES", 12)
    found, apart = last_of([1, 1, 6, 6])
    assert (together, apart) == ([5], [2, 2, 1])
    for each, other in zip(
        (found.tokens, found.log_probs, found.logits), (expected.tokens, expected.log_probs, expected.logits), strict=True
    ):
        np.testing.assert_array_equal(each, other)


def test_calls_of_several_sessions_take_turns() -> None:
    _, world = sessions()
    long_name = open_session(world.engine, [[1, 2]])
    for step in range(12):
        step_session(world.engine, long_name, rows((0, 0 if step else -1, 5)), 1)
    long_call, short_call = StepSession(long_name, rows((0, 0, 6), (0, 0, 7)), 1), OpenSession([[3]])
    world.engine.sessions.submit(long_call)
    world.engine.sessions.submit(short_call)
    replies = [event.call for _ in range(40) for event in world.step() if isinstance(event, SessionReply)]
    assert replies == [short_call, long_call]


def test_a_session_takes_one_step_at_a_time() -> None:
    _, world = sessions()
    name = open_session(world.engine, [[1], [2]])
    first = StepSession(name, rows((0, -1, START), (1, -1, START), (1, -1, START)), 1)
    second = StepSession(name, rows((0, -1, START)), 1)
    world.engine.sessions.submit(first)
    world.engine.sessions.submit(second)
    world.step(6)
    assert first.error is None
    assert isinstance(second.error, InvalidRequest)


def test_calls_are_bounded_in_number() -> None:
    _, world = sessions()
    for _ in range(256):
        world.engine.sessions.submit(OpenSession([[1]]))
    with pytest.raises(Overloaded, match="256 calls"):
        world.engine.sessions.submit(OpenSession([[1]]))
