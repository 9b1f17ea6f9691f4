"""Batches that run their quanta in worker threads."""

from __future__ import annotations

import gc
import select
import threading
from collections.abc import Callable

import pytest
from worlds import LONG, MODEL, PATIENCE_S, BrokenRuntime, World

from dragoman.errors import Cancelled, DeadlineExceeded, ServerError
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, Finished, Sequence
from dragoman.serving.engine.runtime import TopTokens
from fake_runtime import FakeDecoder, FakeRuntime
from stepped_engine import check_invariants


class WatchedRuntime(FakeRuntime):
    """Does `before_step` before every step of a batch, in the thread that runs it."""

    def __init__(self, before_step: Callable[[], None], rows_together: int = 0) -> None:
        super().__init__(MODEL.target_vocabulary, calls_at_once=2, rows_together=rows_together)
        self.before_step = before_step

    def decoder(self, width: int, sequences: int) -> FakeDecoder:
        decoder = super().decoder(width, sequences)
        own = decoder.step

        def step(*arguments: object) -> TopTokens:
            self.before_step()
            return own(*arguments)  # type: ignore[arg-type]

        decoder.step = step  # type: ignore[assignment,method-assign]
        return decoder


def answers_of(engine: Engine) -> dict[str, Sequence]:
    answers = {}
    while engine.busy:
        answers |= {str(event.sequence.owner): event.sequence for event in engine.step() if isinstance(event, Finished)}
        engine.wait()
    return answers


def submit(engine: Engine, *names: str, options: DecodingOptions = LONG, deadline_s: float | None = None) -> list[Sequence]:
    sequences = [Sequence((3, 4, 5), options, deadline_s=deadline_s, owner=name) for name in names]
    for sequence in sequences:
        engine.submit(sequence)
    return sequences


@pytest.mark.parametrize("count", [1, 8])
def test_the_wakeup_fd_is_quiet_when_there_is_nothing_left_to_do(count: int) -> None:
    """Whoever waits for it would never sleep again."""
    runtime = FakeRuntime(MODEL.target_vocabulary, calls_at_once=2, rows_together=4)
    engine = Engine(runtime, MODEL, EngineLimits(max_rows=8))
    submit(engine, *map(str, range(count)))
    assert len(answers_of(engine)) == count
    assert engine.wakeup_fd is not None
    assert select.select([engine.wakeup_fd], [], [], 0) == ([], [], [])


class Meeting:
    """Two batches must be in a step at the same time, once: if they never are, both are broken."""

    def __init__(self) -> None:
        self._both, self.was = threading.Barrier(2, timeout=PATIENCE_S), threading.Event()

    def __call__(self) -> None:
        if not self.was.is_set():
            self._both.wait()
            self.was.set()


@pytest.mark.parametrize(("rows_together", "count"), [(0, 2), (4, 8)])
def test_requests_are_decoded_at_the_same_time_when_they_are_too_many_for_one_call(rows_together: int, count: int) -> None:
    meeting = Meeting()
    engine = Engine(WatchedRuntime(meeting, rows_together), MODEL, EngineLimits(max_rows=8))
    submit(engine, *map(str, range(count)))
    answers = answers_of(engine)
    assert meeting.was.is_set()
    assert [answers[name].error for name in map(str, range(count))] == [None] * count


def test_few_rows_stay_together_in_the_engines_own_thread() -> None:
    threads, sizes = set(), set()

    def look() -> None:
        threads.add(threading.current_thread().name)
        sizes.add(engine.gauges().running_requests)

    engine = Engine(WatchedRuntime(look, rows_together=4), MODEL)
    submit(engine, "one", "two", "three")
    answers = answers_of(engine)
    assert (threads, sizes) == ({threading.current_thread().name}, {3})
    assert [answers[name].error for name in ("one", "two", "three")] == [None] * 3


def test_many_share_the_batches_evenly_and_get_the_answers_of_a_request_alone() -> None:
    alone = World()
    alone.submit("alone")
    expected = alone.finish()["alone"].hypotheses
    engine = Engine(FakeRuntime(MODEL.target_vocabulary, calls_at_once=2), MODEL, EngineLimits(max_rows=8))
    names = [str(number) for number in range(20)]
    submit(engine, *names)
    engine.step()
    assert sorted(map(len, engine._scheduler.batches)) == [4, 4]
    answers = answers_of(engine)
    assert {name: answers[name].hypotheses for name in names} == dict.fromkeys(names, expected)


def test_a_cancelled_request_ends_with_the_step_that_runs() -> None:
    steps, may_step = threading.Semaphore(0), threading.Semaphore(0)

    def wait_for_leave() -> None:
        steps.release()
        assert may_step.acquire(timeout=PATIENCE_S)

    engine = Engine(WatchedRuntime(wait_for_leave), MODEL)
    (gone,) = submit(engine, "gone")
    engine.step()
    assert steps.acquire(timeout=PATIENCE_S)  # it is in its first step
    engine.cancel(gone)
    assert engine.step() == []
    may_step.release()
    answer = answers_of(engine)["gone"]
    assert isinstance(answer.error, Cancelled)
    assert not steps.acquire(blocking=False)  # there was no second


def test_a_deadline_ends_the_wait_and_the_work() -> None:
    now_s = [0.0]
    steps = threading.Semaphore(0)

    def tick() -> None:
        steps.release()
        now_s[0] += 1.0

    engine = Engine(WatchedRuntime(tick), MODEL, clock=lambda: now_s[0])
    submit(engine, "late", deadline_s=0.0)
    submit(engine, "later", deadline_s=5.0, options=DecodingOptions(max_length=19, min_length=19))
    assert engine.timeout_s(9.0) == 0.0
    answers = answers_of(engine)
    assert isinstance(answers["late"].error, DeadlineExceeded)
    assert isinstance(answers["later"].error, DeadlineExceeded)
    assert answers["later"].timings.steps < 19


def test_a_batch_that_breaks_fails_alone() -> None:
    runtime = BrokenRuntime(MODEL.target_vocabulary, calls_at_once=2)
    engine = Engine(runtime, MODEL)
    submit(engine, "fine", "fine too")
    submit(engine, "broken", options=DecodingOptions(beam_size=2, max_length=15, min_length=15))
    engine.submit(Sequence((13,) * 20, LONG, owner="not encoded"))  # too long to be encoded with the others
    answers = answers_of(engine)
    assert answers["fine"].error is None
    assert answers["fine too"].error is None
    for name in ("broken", "not encoded"):
        assert isinstance(answers[name].error, ServerError)
        assert "secret" not in str(answers[name].error)
    submit(engine, "after")
    assert answers_of(engine)["after"].error is None
    check_invariants(engine)


class CountedRuntime(FakeRuntime):
    """Counts quanta: each computes once."""

    def __init__(self) -> None:
        super().__init__(MODEL.target_vocabulary, calls_at_once=2)
        self.quanta = 0
        self.computing = self

    def __enter__(self) -> None:
        self.quanta += 1

    def __exit__(self, *_error: object) -> None:
        pass


def test_slots_that_sequences_did_not_need_end_no_quantum_of_the_next() -> None:
    """They would have been full then; a quantum costs as much as several steps of a small model."""

    def quanta_of(engine: Engine, runtime: CountedRuntime, source: tuple[int, ...]) -> int:
        before = runtime.quanta
        engine.submit(Sequence(source, DecodingOptions(max_length=20), owner="one"))
        answers_of(engine)
        return runtime.quanta - before

    used = CountedRuntime()
    engine = Engine(used, MODEL, clock=lambda: 0.0)  # a quantum that takes long ends, too
    for first in range(3, 13):
        fresh = CountedRuntime()
        alone = quanta_of(Engine(fresh, MODEL, clock=lambda: 0.0), fresh, (first, 4, 5))
        assert quanta_of(engine, used, (first, 4, 5)) == alone > 0


def test_the_wakeup_fd_can_be_read_when_a_quantum_has_ended_and_not_before() -> None:
    may_step = threading.Event()
    engine = Engine(WatchedRuntime(lambda: may_step.wait(PATIENCE_S) and None), MODEL)
    assert engine.wakeup_fd is not None
    assert engine.timeout_s(0.25) == 0.25
    submit(engine, "one", options=DecodingOptions(max_length=1))
    engine.step()
    assert select.select([engine.wakeup_fd], [], [], 0)[0] == []
    assert engine.timeout_s(0.25) == 0.25
    may_step.set()
    assert select.select([engine.wakeup_fd], [], [], PATIENCE_S)[0] == [engine.wakeup_fd]
    (answer,) = engine.step()
    assert isinstance(answer, Finished)
    assert select.select([engine.wakeup_fd], [], [], 0)[0] == []


def test_a_call_that_does_not_come_back_is_noticed() -> None:
    in_step, may_step, now_s = threading.Event(), threading.Event(), [0.0]

    def hang() -> None:
        in_step.set()
        assert may_step.wait(PATIENCE_S)

    engine = Engine(WatchedRuntime(hang), MODEL, clock=lambda: now_s[0])
    submit(engine, "one")
    assert not engine.is_stuck
    engine.step()
    assert in_step.wait(PATIENCE_S)
    now_s[0] = 0.5
    assert not engine.is_stuck
    now_s[0] = 4.0
    submit(engine, "another")
    engine.step()
    assert engine.is_stuck
    may_step.set()
    answers_of(engine)
    assert not engine.is_stuck


def test_an_engine_of_one_call_has_no_threads_and_never_waits() -> None:
    before = set(threading.enumerate())
    engine = Engine(FakeRuntime(MODEL.target_vocabulary), MODEL)
    submit(engine, "one")
    assert (engine.wakeup_fd, engine.timeout_s(9.0), set(threading.enumerate()) - before) == (None, 0.0, set())
    engine.wait()
    engine.close()


@pytest.mark.parametrize("closes", [True, False])
def test_the_threads_end_with_their_engine(closes: bool) -> None:
    before = set(threading.enumerate())
    engine = Engine(FakeRuntime(MODEL.target_vocabulary, calls_at_once=3), MODEL)
    submit(engine, "one")
    answers_of(engine)
    own = set(threading.enumerate()) - before
    assert len(own) == 3
    if closes:
        engine.close()
        engine.close()
    del engine
    gc.collect()
    assert not any(thread.is_alive() for thread in own)


@pytest.mark.parametrize(("max_rows", "width", "share"), [(8, 1, 4), (8, 4, 1), (9, 4, 1), (16, 5, 2), (4, 4, 1)])
def test_batches_of_a_width_can_hold_all_rows_together(max_rows: int, width: int, share: int) -> None:
    engine = Engine(FakeRuntime(MODEL.target_vocabulary, calls_at_once=2), MODEL, EngineLimits(max_rows=max_rows))
    submit(engine, *map(str, range(max_rows)), options=DecodingOptions(beam_size=width, max_length=4))
    engine.step()
    assert engine._scheduler.batches[0].share == share
    assert engine.gauges().running_rows <= max_rows
    assert all(answer.error is None for answer in answers_of(engine).values())
