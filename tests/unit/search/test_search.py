"""What searches do together: join, leave, draw and report what is decided."""

from __future__ import annotations

import numpy as np
import pytest
from scripted_model import EOS, START, VOCABULARY, Decoding, Tokens, alone, logits

from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions
from dragoman.search.greedy import GreedyBatch
from single_search import Search

GREEDY = [
    DecodingOptions(max_length=9),
    DecodingOptions(max_length=14, min_length=6, prefix=(3, 4)),
    DecodingOptions(max_length=11, no_repeat_ngram_size=2, bad_words=((5,), (6, 7))),
    DecodingOptions(max_length=30, sampling=True, top_k=6, seed=3),
    DecodingOptions(max_length=12, sampling=True, top_k=0, top_p=0.8, temperature=1.7, seed=9),
]
BEAMS = [
    DecodingOptions(beam_size=3, max_length=8, num_hypotheses=3),
    DecodingOptions(beam_size=3, max_length=17, prefix=(9,), length_penalty=2.0),
    DecodingOptions(beam_size=3, max_length=12, repetition_penalty=1.5, early_stopping="never"),
    DecodingOptions(beam_size=3, max_length=90, min_length=70, early_stopping="first"),
]


@pytest.mark.parametrize("every", [GREEDY, BEAMS], ids=["width 1", "width 3"])
def test_a_search_that_joins_late_has_its_result_alone(every: list[DecodingOptions]) -> None:
    decoding = Decoding(every[0].beam_size)
    for source in range(30):  # more than the batch starts with room for, two joining at every step
        decoding.begin(source, every[source % len(every)])
        if source % 2:
            decoding.step()
    answers = decoding.finish().answers
    assert answers == {source: alone(source, every[source % len(every)]) for source in range(30)}


def test_a_search_that_leaves_early_does_not_disturb_the_others() -> None:
    decoding = Decoding(3)
    for source, options in enumerate(BEAMS):
        decoding.begin(source, options)
    decoding.step()
    decoding.leave(0)
    answers = decoding.finish().answers
    assert answers == {source: alone(source, BEAMS[source]) for source in (1, 2, 3)}


@pytest.mark.parametrize("every", [GREEDY, BEAMS], ids=["width 1", "width 3"])
def test_what_is_decided_only_grows_and_begins_the_answer(every: list[DecodingOptions]) -> None:
    decoding = Decoding(every[0].beam_size)
    for source, options in enumerate(every):
        decoding.begin(source, options)
    decoding.finish()
    for source, steps in decoding.decided.items():
        answer = decoding.answers[source][0].tokens
        for earlier, later in zip(steps, [*steps[1:], answer], strict=True):
            assert later[: len(earlier)] == earlier


def test_greedy_search_decides_every_token_at_once() -> None:
    decoding = Decoding(1)
    decoding.begin(1, DecodingOptions(max_length=5, min_length=5))
    decoding.finish()
    assert [len(step) for step in decoding.decided[1]] == [1, 2, 3, 4, 5]


def test_the_prefix_is_part_of_the_answer_and_not_of_its_length() -> None:
    (answer,) = alone(4, DecodingOptions(max_length=2, min_length=2, prefix=(8, 8, 8)))
    assert answer.tokens[:3] == (8, 8, 8)
    assert len(answer.tokens) == 5


def test_the_score_is_the_mean_log_probability_of_what_was_generated() -> None:
    (answer,) = alone(5, DecodingOptions(max_length=4, min_length=4, prefix=(7,)))
    row, total = [START, 7], 0.0
    for token in answer.tokens[1:]:
        said = logits(5, row).astype(np.float64)
        total += said[token] - np.log(np.exp(said).sum())
        row.append(token)
    assert answer.score == pytest.approx(total / 4, rel=1e-5)


def test_another_seed_draws_another_text() -> None:
    drawn = {alone(1, DecodingOptions(sampling=True, max_length=12, top_k=0, seed=seed)) for seed in range(8)}
    assert len(drawn) > 4


def test_sampling_follows_the_requested_probabilities() -> None:
    said = logits(2, [START]).astype(np.float64) / 0.8
    best = np.argsort(-said)[:5]
    weights = np.exp(said[best] - said[best].max())
    weights /= weights.sum()
    kept = np.cumsum(weights) - weights < 0.9
    expected = dict(zip(best[kept].tolist(), (weights[kept] / weights[kept].sum()).tolist(), strict=True))
    decoding = Decoding(1)
    drawn = []
    for seed in range(2000):
        decoding.begin(2, DecodingOptions(sampling=True, max_length=1, top_k=5, top_p=0.9, temperature=0.8, seed=seed))
        decoding.finish()
        drawn.append(decoding.answers[2][0].tokens[0])
    assert set(drawn) <= set(expected)
    for token, probability in expected.items():
        spread = (probability * (1 - probability) / len(drawn)) ** 0.5
        assert abs(drawn.count(token) / len(drawn) - probability) < 4 * spread


def test_a_search_needs_one_candidate_while_its_prefix_is_fed() -> None:
    search = Search(DecodingOptions(beam_size=4, prefix=(1, 2), bad_words=((3,),)), Tokens(), VOCABULARY)
    asked = []
    for _ in range(3):
        asked.append((search.tokens.tolist(), search.position, search.candidates))
        k = search.candidates
        best = np.tile(np.arange(k), (4, 1))
        search.advance(best, np.full((4, k), -1.0, np.float32), np.zeros((4, k), np.float32))
    assert asked == [([START] * 4, 0, 1), ([1] * 4, 1, 1), ([2] * 4, 2, 9)]


def test_several_greedy_steps_at_once_equal_single_steps() -> None:
    options = DecodingOptions(max_length=9, bad_words=((7,),))
    said = []
    for steadily in (False, True):
        batch = GreedyBatch(Tokens(), VOCABULARY)
        batch.join(options)
        for token in (5, 6, 7, 8, 9):
            tokens, log_probs = np.array([[token, 4]]), np.array([[-0.5, -1.0]], np.float32)
            if not (steadily and batch.takes_best and batch.advance_best([token], [-0.5]) is not None):
                batch.advance(tokens, log_probs, log_probs)
        said.append((batch.tokens.tolist(), batch.positions.tolist(), batch.hypotheses(0)))
    assert said[0] == said[1]
    assert said[0][2][0].tokens == (5, 6, 4, 8, 9)


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="token id 23 is outside the model's vocabulary of 23"):
        Search(DecodingOptions(prefix=(VOCABULARY,)), Tokens(), VOCABULARY)


def test_when_everything_is_forbidden_the_search_still_ends() -> None:
    forbidden = tuple((token,) for token in range(VOCABULARY) if token != EOS)
    for width in (1, 2):
        (answer,) = alone(1, DecodingOptions(beam_size=width, bad_words=forbidden, min_length=5, max_length=8))
        assert len(answer.tokens) <= 8
