"""Forced decoding: scores and alignments of given targets, and of what a search has found."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import MODEL

from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded, ServerError
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Engine, EngineLimits, Forcing, Sequence
from fake_runtime import FakeForced, FakeRuntime
from stepped_engine import check_invariants

SOURCE = (5, 6, 7, 8, 0)
TARGET = (9, 3, 12, 4, 11, 2, 7, 0)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def engine_with(limits: EngineLimits | None = None, threads: int = 1, clock: Clock | None = None) -> Engine:
    runtime = FakeRuntime(MODEL.target_vocabulary, calls_at_once=threads)
    return Engine(runtime, MODEL, limits) if clock is None else Engine(runtime, MODEL, limits, clock)


def finish(engine: Engine, *sequences: Sequence) -> None:
    for sequence in sequences:
        engine.submit(sequence)
    for _ in range(10_000):
        if not engine.busy:
            break
        if not engine.step():
            engine.wait()
        check_invariants(engine)
    engine.close()
    assert all(sequence.ended_s is not None for sequence in sequences)


@pytest.mark.parametrize("threads", [1, 2])
def test_hypotheses_get_the_log_probabilities_that_the_search_saw(threads: int) -> None:
    options = DecodingOptions(beam_size=3, num_hypotheses=3, max_length=7)
    sequence = Sequence(SOURCE, options, forcing=Forcing())
    finish(engine_with(threads=threads), sequence)
    assert sequence.error is None
    assert [one.tokens for one in sequence.forced] == [one.tokens for one in sequence.hypotheses]
    for forced, hypothesis in zip(sequence.forced, sequence.hypotheses, strict=True):
        assert forced.log_probs.mean() == pytest.approx(hypothesis.score, abs=1e-5)
        assert forced.alignment.shape == (len(hypothesis.tokens), len(SOURCE))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_score_is_independent_of_what_runs_beside_it(threads: int) -> None:
    alone = Sequence(SOURCE, forcing=Forcing(targets=(TARGET,)))
    finish(engine_with(threads=threads), alone)
    others = [Sequence((3 + at, 0), DecodingOptions(max_length=9), forcing=Forcing() if at % 2 else None) for at in range(9)]
    among = Sequence(SOURCE, forcing=Forcing(targets=(TARGET, TARGET[:3])))
    finish(engine_with(threads=threads), *others[:4], among, *others[4:])
    assert all(one.error is None for one in others)
    np.testing.assert_array_equal(among.forced[0].log_probs, alone.forced[0].log_probs)
    np.testing.assert_array_equal(among.forced[1].log_probs, alone.forced[0].log_probs[:3])


def test_alternatives_are_the_best_tokens_after_the_given_ones() -> None:
    sequence = Sequence(SOURCE, forcing=Forcing(targets=(TARGET,), alternatives=2))
    finish(engine_with(), sequence)
    (forced,) = sequence.forced
    assert forced.best_tokens.shape == forced.best_log_probs.shape == (len(TARGET), 2)
    best = Sequence(SOURCE, DecodingOptions(max_length=1))
    finish(engine_with(), best)
    assert forced.best_tokens[0, 0] == best.hypotheses[0].tokens[0]
    assert (forced.best_log_probs[:, 0] >= forced.best_log_probs[:, 1]).all()


@pytest.mark.parametrize("kept", [1024, 0])
def test_a_source_is_encoded_once_where_it_can_be_kept(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = FakeRuntime.encode

    def counting(self: FakeRuntime, sources: list[tuple[int, ...]]) -> object:
        encoded.extend(map(len, sources))
        return encode(self, sources)

    monkeypatch.setattr(FakeRuntime, "encode", counting)
    sequences = [Sequence((*range(3, 3 + at), 0), forcing=Forcing(scores=False)) for at in range(1, 9)]
    engine = engine_with()
    monkeypatch.setattr(engine._forced, "_most_kept", kept)
    finish(engine, *sequences)
    assert len(encoded) == (8 if kept else 16)
    for sequence in sequences:
        assert sequence.forced[0].alignment.shape == (len(sequence.hypotheses[0].tokens), sequence.source_tokens)
    assert not engine._forced._kept


def test_few_sequences_wait_to_be_read_while_others_decode() -> None:
    engine, most = engine_with(EngineLimits(max_rows=32), clock=Clock()), 0
    for at in range(400):
        engine.submit(Sequence((3 + at % 9, 0), DecodingOptions(max_length=4 + at % 5), forcing=Forcing(scores=False)))
    while engine.busy:
        engine.step()
        most = max(most, len(engine._forced))
    engine.close()
    assert most < 200  # one for each step would leave 372 behind


def test_only_what_is_requested_of_hypotheses_is_returned() -> None:
    options = DecodingOptions(beam_size=3, num_hypotheses=3, max_length=7)
    every, one = (
        Sequence(SOURCE, options, forcing=Forcing(scores=False)),
        Sequence(SOURCE, options, forcing=Forcing(best_only=True)),
    )
    finish(engine_with(), every, one)
    assert [len(found.log_probs) for found in every.forced] == [0, 0, 0]
    assert [found.tokens for found in one.forced] == [every.hypotheses[0].tokens]
    np.testing.assert_array_equal(one.forced[0].alignment, every.forced[0].alignment)


def test_a_token_may_look_at_the_source_when_it_is_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeForced, "aligns_when_fed", True)
    sequence = Sequence(SOURCE, forcing=Forcing(targets=(TARGET[:3], (9, 3))))
    finish(engine_with(), sequence)
    assert [one.alignment.argmax(1).tolist() for one in sequence.forced] == [[1, 2, 3], [1, 2]]
    assert [len(one.log_probs) for one in sequence.forced] == [3, 2]


@pytest.mark.parametrize(
    ("forcing", "problem"),
    [
        (Forcing(targets=((),)), "has no tokens"),
        (Forcing(targets=((1,) * (MODEL.max_target_tokens + 1),)), "the model takes"),
        (Forcing(targets=((MODEL.target_vocabulary,),)), "outside the vocabulary"),
        (Forcing(targets=((-1,),)), "outside the vocabulary"),
        (Forcing(alternatives=MODEL.target_vocabulary + 1), "more than this model gives"),
    ],
)
def test_targets_that_can_not_be_read_are_refused(forcing: Forcing, problem: str) -> None:
    engine = engine_with()
    with pytest.raises(InvalidRequest, match=problem):
        engine.submit(Sequence(SOURCE, forcing=forcing))
    assert not engine.busy


def test_a_bundle_without_the_graph_says_what_to_do() -> None:
    runtime = FakeRuntime(MODEL.target_vocabulary)
    runtime.forced = None
    with pytest.raises(InvalidRequest, match="export the checkpoint again"):
        Engine(runtime, MODEL).submit(Sequence(SOURCE, forcing=Forcing()))


def test_a_full_queue_of_targets_refuses_the_next_one() -> None:
    engine = engine_with(EngineLimits(max_queue_requests=2))
    for _ in range(2):
        engine.submit(Sequence(SOURCE, forcing=Forcing(targets=(TARGET,))))
    with pytest.raises(Overloaded):
        engine.submit(Sequence(SOURCE, forcing=Forcing(targets=(TARGET,))))


def test_a_target_whose_caller_went_away_is_not_read() -> None:
    clock = Clock()
    engine = engine_with(clock=clock)
    gone = Sequence(SOURCE, forcing=Forcing(targets=(TARGET,)))
    late = Sequence(SOURCE, forcing=Forcing(targets=(TARGET,)), deadline_s=1.0)
    engine.submit(gone)
    engine.submit(late)
    engine.cancel(gone)
    clock.now_s = 2.0
    engine.step()
    check_invariants(engine)
    assert isinstance(gone.error, Cancelled)
    assert isinstance(late.error, DeadlineExceeded)
    assert not engine.busy


def test_what_a_library_raises_is_the_answer_of_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = FakeForced.reader

    def failing(self: FakeForced, encoded: object, target_tokens: int) -> object:
        if target_tokens == 3:
            raise RuntimeError("/secret/path")
        return reader(self, encoded, target_tokens)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeForced, "reader", failing)
    bad = Sequence(SOURCE, forcing=Forcing(targets=(TARGET[:3],)))
    good = Sequence(SOURCE, forcing=Forcing(targets=(TARGET,)))
    finish(engine_with(), bad, good)
    assert isinstance(bad.error, ServerError)
    assert "secret" not in str(bad.error)
    assert good.error is None


def test_requests_take_turns_however_much_they_ask_for() -> None:
    engine, much, little = engine_with(), object(), object()
    many = [Sequence((3 + at, 0), request=much, forcing=Forcing(targets=(TARGET,) * 8)) for at in range(6)]
    few = Sequence(SOURCE, request=little, forcing=Forcing(targets=(TARGET,)))
    finish(engine, *many, few)
    assert few.ended_s is not None
    assert sum(one.ended_s is not None and one.ended_s < few.ended_s for one in many) == 0
