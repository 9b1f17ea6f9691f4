"""Token for token, our search generates what Hugging Face `generate` does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_marian import EOS, PAD, VOCABULARY, generated, searched

from dragoman.search import DecodingOptions

SOURCES = [[5, 9, 3, EOS], [11, 12, 13, 14, 30, 2, EOS], [7, EOS], [33, 1, 20, EOS]]

CASES = {
    "greedy": {},
    "greedy, short": {"max_length": 3},
    "greedy, one token": {"max_length": 1},
    "greedy, at least": {"min_length": 9},
    "greedy, bad words": {"bad_words": ((PAD,), (4,), (9, 3), (PAD, 17), (EOS,))},
    "greedy, many bad words": {"bad_words": tuple((token,) for token in range(3, 20))},
    "greedy, no repeated word": {"no_repeat_ngram_size": 1},
    "greedy, no repeated pair": {"no_repeat_ngram_size": 2, "min_length": 12},
    "greedy, repetition penalty": {"repetition_penalty": 1.7, "min_length": 10},
    "greedy, another start": {"decoder_start": 7, "max_length": 10, "repetition_penalty": 1.4},
    "beam 3, another start": {"beam_size": 3, "num_hypotheses": 3, "decoder_start": 7, "forced_bos": 8, "max_length": 10},
    "greedy, forced": {"forced_bos": 8, "forced_eos": EOS, "max_length": 6, "min_length": 6},
    "greedy, prefix": {"prefix": (3, 21, 9), "forced_bos": 8, "max_length": 10, "no_repeat_ngram_size": 2},
    "beam 2": {"beam_size": 2},
    "beam 4": {"beam_size": 4, "num_hypotheses": 4},
    "beam 4, short": {"beam_size": 4, "num_hypotheses": 4, "max_length": 4},
    "beam 3, one token": {"beam_size": 3, "num_hypotheses": 3, "max_length": 1},
    "beam 4, long is good": {"beam_size": 4, "num_hypotheses": 3, "length_penalty": 2.5},
    "beam 4, short is good": {"beam_size": 4, "num_hypotheses": 3, "length_penalty": -1.0},
    "beam 4, first": {"beam_size": 4, "num_hypotheses": 4, "early_stopping": "first"},
    "beam 4, never": {"beam_size": 4, "num_hypotheses": 4, "early_stopping": "never", "max_length": 14},
    "beam 4, never, no penalty": {"beam_size": 4, "num_hypotheses": 2, "early_stopping": "never", "length_penalty": 0.0},
    "beam 5, at least": {"beam_size": 5, "num_hypotheses": 5, "min_length": 8, "max_length": 12},
    "beam 3, bad words": {"beam_size": 3, "num_hypotheses": 2, "bad_words": ((PAD,), (4,), (9, 3), (3, 9, 1), (PAD, 17))},
    "beam 3, no repeated pair": {"beam_size": 3, "no_repeat_ngram_size": 2, "min_length": 10},
    "beam 3, repetition penalty": {"beam_size": 3, "num_hypotheses": 3, "repetition_penalty": 1.4, "min_length": 6},
    "beam 3, forced": {"beam_size": 3, "num_hypotheses": 3, "forced_bos": 8, "forced_eos": EOS, "max_length": 7},
    "beam 3, forced at once": {"beam_size": 3, "forced_bos": 8, "forced_eos": EOS, "max_length": 2},
    "beam 4, prefix": {"beam_size": 4, "num_hypotheses": 4, "prefix": (3, 21), "repetition_penalty": 1.2, "max_length": 9},
    "beam 20, wider than half the vocabulary": {"beam_size": 20, "num_hypotheses": 20, "max_length": 5},
}


@pytest.mark.parametrize("name", CASES)
def test_it_generates_what_hugging_face_generates(name: str) -> None:
    options = DecodingOptions(**{"max_length": 20, **CASES[name]})
    answers = searched(SOURCES, [options] * len(SOURCES))
    for source, ours in zip(SOURCES, answers, strict=True):
        agree(generated(source, options), ours)


SEVERAL_ENDS = (EOS, 9, 17)
"""Tokens that this model generates often, so that most rows end in different ways."""


@pytest.mark.parametrize("name", CASES)
def test_with_several_end_tokens_it_generates_what_hugging_face_generates(name: str) -> None:
    options = DecodingOptions(**{"max_length": 20, **CASES[name]})
    answers = searched(SOURCES, [options] * len(SOURCES), ends=SEVERAL_ENDS)
    for source, ours in zip(SOURCES, answers, strict=True):
        agree(generated(source, options, SEVERAL_ENDS), ours, SEVERAL_ENDS)


WIDTHS = st.sampled_from([1, 2, 3, 4])
WORDS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=3).map(tuple), max_size=6).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[list[int]], list[DecodingOptions]]:
    """Up to three sources with options of their own, but one width: one batch."""
    width, count = draw(WIDTHS), draw(st.integers(1, 3))
    sources = [[*draw(st.lists(st.integers(1, VOCABULARY - 2), min_size=1, max_size=6)), EOS] for _ in range(count)]
    every = []
    for _ in range(count):
        longest = draw(st.integers(1, 12))
        every.append(
            DecodingOptions(
                beam_size=width,
                num_hypotheses=draw(st.integers(1, width)),
                max_length=longest,
                min_length=draw(st.integers(0, longest)),
                length_penalty=draw(st.sampled_from([1.0, 0.0, 0.6, 2.0, -0.5])),
                early_stopping=draw(st.sampled_from(["heuristic", "first", "never"])),
                no_repeat_ngram_size=draw(st.integers(0, 3)),
                repetition_penalty=draw(st.sampled_from([1.0, 1.1, 2.0])),
                bad_words=draw(WORDS),
                forced_bos=draw(st.none() | st.integers(1, VOCABULARY - 1)),
                forced_eos=draw(st.none() | st.just(EOS)),
                prefix=tuple(draw(st.lists(st.integers(1, VOCABULARY - 2), max_size=3))),
            )
        )
    return sources, every


@settings(max_examples=250, deadline=None)
@given(requests(), st.integers(0, 5), st.sampled_from([(EOS,), SEVERAL_ENDS, (3, EOS)]))
def test_any_options_in_one_batch_generate_what_hugging_face_generates_alone(
    asked: tuple[list[list[int]], list[DecodingOptions]], extra_candidates: int, ends: tuple[int, ...]
) -> None:
    sources, every = asked
    for source, options, ours in zip(sources, every, searched(sources, every, extra_candidates, ends), strict=True):
        agree(generated(source, options, ends), ours, ends)


def agree(theirs: list[tuple[tuple[int, ...], float | None]], ours: tuple, ends: tuple[int, ...] = (EOS,)) -> None:
    assert len(ours) == len(theirs)
    # When fewer continuations are possible than beams, Hugging Face fills up with rows that it marks with -1e9.
    theirs = [(tokens, score) for tokens, score in theirs if score is None or score > -1e8]
    ours = ours[: len(theirs)]
    assert [hypothesis.tokens for hypothesis in ours] == [tokens for tokens, _ in theirs]
    for hypothesis, (_, score) in zip(ours, theirs, strict=True):
        assert score is None or math.isclose(hypothesis.score, score, rel_tol=1e-4, abs_tol=1e-5)
        assert hypothesis.finish == ("eos" if hypothesis.tokens[-1] in ends else "length")
