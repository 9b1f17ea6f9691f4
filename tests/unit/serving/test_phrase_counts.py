"""Whether a translation has a phrase, or a term as whole words: what the metrics count."""

from __future__ import annotations

import time

from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.serving.process.request_metrics import _has, _packed

TOKENS = st.lists(st.sampled_from([1, 2, 256, 257, 65536, 65793]), max_size=12)


class Endings:
    """Token 2 goes on with the word before it, and any word but token 1 can be gone on with."""

    signs = ()

    def edges(self, tokens: tuple[int, ...]) -> tuple[bool, bool]:
        return tokens[0] == 2, tokens[-1] != 1

    def is_open(self, token: int) -> bool:
        return token != 1

    def goes_on(self, token: int) -> bool:
        return token == 2


def stands_alone(tokens: list[int], start: int, end: int) -> bool:
    begins, ends = Endings().edges(tuple(tokens[start:end]))
    goes_before = begins and start > 0 and tokens[start - 1] != 1
    return not goes_before and not (ends and end < len(tokens) and tokens[end] == 2)


@given(TOKENS, TOKENS.filter(bool))
@example([65793, 65793], [257])  # the bytes are there, but not at the beginning of a token
@example([257, 2, 257], [257])
def test_a_phrase_counts_where_its_tokens_stand_and_a_term_where_its_words_do(tokens: list[int], phrase: list[int]) -> None:
    starts = [at for at in range(len(tokens)) if tokens[at : at + len(phrase)] == phrase]
    assert _has(_packed(tuple(tokens)), tuple(phrase), None) is bool(starts)
    alone = any(stands_alone(tokens, start, start + len(phrase)) for start in starts)
    assert _has(_packed(tuple(tokens)), tuple(phrase), Endings()) is alone


def test_terms_that_are_parts_of_longer_words_everywhere_are_counted_in_little_time() -> None:
    packed, began_s = _packed((2,) * 500), time.thread_time()
    assert not any(_has(packed, (2,) * length, Endings()) for length in range(1, 257))
    assert time.thread_time() - began_s < 1.0
