"""Phrases that an answer must have: they are there, whatever else is in the batch, and others do not notice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_model import EOS, VOCABULARY, Decoding, Tokens, alone, logits

import dragoman.search.phrases
from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions, search_batch
from dragoman.search.phrase_table import PhraseTable
from dragoman.search.phrases import PhraseTracker
from pretend_words import WORDS, has_whole

tokens = st.integers(1, VOCABULARY - 1)
phrases = st.lists(
    st.lists(st.lists(tokens, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple), min_size=1, max_size=3
).map(tuple)


def has(answer: tuple[int, ...], phrase: tuple[tuple[int, ...], ...]) -> bool:
    spans = itertools.combinations(range(len(answer) + 1), 2)
    return not {answer[start:end] for start, end in spans}.isdisjoint(phrase)


@settings(max_examples=60, deadline=None)
@given(phrases, st.integers(2, 5), st.integers(0, 9), st.sampled_from([(), (4,), (3, 4, 5)]))
def test_the_answer_has_every_phrase(wanted: tuple, width: int, source: int, prefix: tuple[int, ...]) -> None:
    options = DecodingOptions(beam_size=width, num_hypotheses=2, phrases=wanted, prefix=prefix, max_length=40)
    for hypothesis in alone(source, options):
        assert all(has(hypothesis.tokens, phrase) for phrase in wanted)
        assert hypothesis.tokens[: len(prefix)] == prefix


@settings(max_examples=100, deadline=None)
@given(phrases, st.lists(st.just(((8,),)), max_size=1), st.integers(2, 5), st.integers(0, 9), st.sampled_from([(), (4, 8)]))
def test_the_answer_has_every_term_as_a_whole_word(
    wanted: tuple, beside: list, width: int, source: int, prefix: tuple[int, ...]
) -> None:
    options = DecodingOptions(
        beam_size=width, num_hypotheses=2, terms=wanted, phrases=tuple(beside), prefix=prefix, max_length=60
    )
    for hypothesis in alone(source, options):
        assert all(has_whole(hypothesis.tokens, term) for term in wanted)
        assert all(has(hypothesis.tokens, phrase) for phrase in beside)


def test_a_word_that_goes_on_or_began_before_is_not_the_term() -> None:
    table = PhraseTable((), frozenset((0,)), terms=(((4, 7),), ((4, 7, 9),)), words=WORDS)

    def bank(*said: int) -> int:
        state, in_word = table.start, False
        for token in said:
            state, in_word = table.next(state, token, in_word), WORDS.is_open(token)
        return state.bank

    # 3, 6, 9 … go on with a word; behind 5 a word ends.
    assert [bank(4, 7), bank(4, 7, 10), bank(4, 7, 6), bank(4, 7, 6, 10), bank(4, 7, 0)] == [2, 2, 0, 0, 2]
    assert [bank(2, 4, 7), bank(5, 4, 7)] == [0, 2]
    assert [bank(4, 7, 9), bank(4, 7, 9, 6), bank(4, 7, 9, 5, 4, 7)] == [3, 0, 5]


def test_terms_need_words() -> None:
    batch = search_batch(2, Tokens(), VOCABULARY)
    with pytest.raises(InvalidRequest, match="give phrases"):
        batch.join(DecodingOptions(beam_size=2, terms=(((3,),),)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(phrases | st.just(()), phrases | st.just(()), st.integers(0, 30)), min_size=2, max_size=12))
def test_the_answer_is_the_same_alone_and_in_any_batch(requests: list[tuple[tuple, tuple, int]]) -> None:
    every = {
        100 * number + source: DecodingOptions(
            beam_size=3, phrases=wanted, terms=whole, max_length=18 + number, repetition_penalty=1.0 + 0.2 * (number % 2)
        )
        for number, (wanted, whole, source) in enumerate(requests)
    }
    decoding = Decoding(3)
    for number, (source, options) in enumerate(every.items()):
        decoding.begin(source, options)
        if number % 2:
            decoding.step()
    assert decoding.finish().answers == {source: alone(source, options) for source, options in every.items()}


def test_the_score_is_that_of_the_tokens() -> None:
    (answer,) = alone(3, DecodingOptions(beam_size=4, phrases=(((7, 8),), ((9,),)), max_length=30))
    row, total = [22], 0.0
    for token in answer.tokens:
        said = logits(3, row).astype(np.float64)
        total += said[token] - np.log(np.exp(said).sum())
        row.append(token)
    assert answer.score == pytest.approx(total / len(answer.tokens), rel=1e-5)


def test_a_phrase_that_the_search_finds_by_itself_changes_nothing() -> None:
    options = DecodingOptions(beam_size=1, max_length=12)
    (plain,) = alone(1, options)
    (answer,) = alone(1, DecodingOptions(beam_size=4, phrases=((plain.tokens[:2],),), max_length=12))
    assert answer.tokens[:2] == plain.tokens[:2]


def test_a_phrase_counts_once_and_the_longest_first() -> None:
    table = PhraseTable((((5,),), ((4, 5),)))

    def bank(*said: int) -> int:
        state = table.start
        for token in said:
            state = table.next(state, token)
        return state.bank

    assert [bank(4), bank(4, 5), bank(4, 5, 6), bank(4, 5, 5), bank(5, 4, 6), bank(5, 4, 5)] == [1, 2, 2, 3, 1, 3]


def test_a_phrase_that_is_forbidden_does_not_keep_the_search_from_its_end() -> None:
    (answer,) = alone(2, DecodingOptions(beam_size=3, phrases=(((6,),),), bad_words=((6,),), max_length=10))
    assert 6 not in answer.tokens
    assert len(answer.tokens) <= 10


def test_many_phrases_and_little_room_end_at_the_limit() -> None:
    wanted = tuple(((token, token + 1),) for token in range(1, 20))
    (answer,) = alone(2, DecodingOptions(beam_size=4, phrases=wanted, max_length=12))
    assert len(answer.tokens) == 12
    assert EOS not in answer.tokens


@pytest.mark.parametrize("wanted", [(((),),), ((),), (((VOCABULARY,),),)])
def test_a_phrase_of_nothing_or_of_unknown_tokens_is_refused(wanted: tuple) -> None:
    with pytest.raises(InvalidRequest):
        alone(1, DecodingOptions(beam_size=2, phrases=wanted))


def test_phrases_need_a_beam() -> None:
    with pytest.raises(InvalidRequest, match="use beam_size=2 or more"):
        DecodingOptions(phrases=(((1,),),))


many_phrases = st.lists(
    st.lists(st.lists(tokens, min_size=1, max_size=4).map(tuple), min_size=1, max_size=3).map(tuple), min_size=5, max_size=12
).map(tuple)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(many_phrases, st.lists(many_phrases, max_size=1), st.integers(2, 3), st.integers(0, 9))
def test_wanted_tokens_that_are_left_out_change_no_answer(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple, whole: list, width: int, source: int
) -> None:
    terms = whole[0] if whole else ()
    options = DecodingOptions(beam_size=width, num_hypotheses=2, phrases=wanted, terms=terms, max_length=30)
    answers = alone(source, options)
    with monkeypatch.context() as patch:
        patch.setattr(dragoman.search.phrases, "_FEW", 0)
        assert alone(source, options) == answers


def test_of_very_many_wanted_tokens_few_become_candidates() -> None:
    wanted = tuple(tuple((100 + 4 * phrase + which, 9) for which in range(4)) for phrase in range(64))
    tracker = PhraseTracker(DecodingOptions(beam_size=16, phrases=wanted), frozenset((EOS,)), 16, None)
    scored = np.array([row.padded(256).tolist() for row in tracker.wanted()])
    assert scored.shape == (16, 256)
    best = np.tile(np.arange(1, 9), (16, 1))
    sums = -np.sort(-np.random.default_rng(3).normal(-9, 2, (16, 8 + 256)).astype(np.float32))
    sums[:, 8:] = sums[:, :7:-1]
    candidates = tracker.candidates(best.tolist(), sums[:, :8].tolist(), sums[:, 8:], -1e9)
    assert len(candidates) == 16 * (8 + 16)
    assert max(score for score, _, token, _ in candidates if token >= 100) == sums[:, 8:].max()


def test_phrases_that_repeat_themselves_are_begun_a_bounded_number_of_times() -> None:
    wanted = tuple(((7,) * (40 + phrase),) * 4 for phrase in range(20))
    table = PhraseTable(wanted)
    state, counted = table.start, []
    for _ in range(70):
        state = table.next(state, 7)
        counted.append(sum(map(len, state.begun.values())))
    assert max(counted) <= 64 + 80
    assert state.bank > 40


def test_a_phrase_that_repeats_itself_is_found_wherever_it_begins() -> None:
    table = PhraseTable((((7,) * 63 + (8,),),))
    state = table.start
    for token in [7] * 100 + [8]:
        state = table.next(state, token)
    assert state.bank == table.most


def test_states_are_not_kept_without_end() -> None:
    wanted = tuple(((token, token + 1),) for token in range(1, 20))
    table = PhraseTable(wanted)
    rng, state = np.random.default_rng(5), table.start
    for token in rng.integers(1, 22, 5000).tolist():
        state = table.next(table.start if state.bank == table.most else state, token)
    assert len(table._states) <= 4096 // len(wanted)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-40, 0), st.integers(0, 3), st.integers(0, 9), st.integers(0, 5)), max_size=40))
def test_the_fullest_bank_has_the_first_place_and_all_banks_share_the_others_in_turn(found: list) -> None:
    candidates = sorted({one[0]: one for one in found}.values(), reverse=True)
    tracker = PhraseTracker(DecodingOptions(beam_size=4, phrases=(((5,),),)), frozenset((EOS + 100,)), 4, None)
    banks = {bank: [one for one in candidates if one[3] == bank] for *_, bank in candidates}
    expected = [banks[max(banks)].pop(0)] if banks else []
    while any(banks.values()) and len(expected) < 4:
        expected += sorted((bank.pop(0) for bank in banks.values() if bank), reverse=True)
    assert tracker.kept(candidates) == sorted(expected[:4], reverse=True)
