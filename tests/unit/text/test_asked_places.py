"""What else could stand at a place: places become tokens as the parts of a text are joined."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from dragoman.serving.text.alternatives import AskedPlaces, ReadTarget

END = 0


class Letters:
    """A token is a letter, the end token is 0; two-letter tokens begin at 1000."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(_text(one) for one in ids)

    def target_spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        ends = list(itertools.accumulate(len(_text(one)) for one in ids))
        return list(zip([0, *ends], ends, strict=False))


def _text(token: int) -> str:
    return "" if token == END else chr(token) if token < 1000 else 2 * chr(token - 1000)


def read(*tokens: int, others: Sequence[int] = (65, END)) -> ReadTarget:
    """A target whose tokens have the log-probabilities −0, −1, −2 …; `others` could stand anywhere."""
    count = len(tokens)
    return ReadTarget(tokens, [-float(at) for at in range(count)], [others] * count, [[-0.5, -9.0]] * count)


def test_a_place_belongs_to_the_token_that_covers_it() -> None:
    asked = AskedPlaces([2, 0, 1], Letters())
    asked.look(0, 4, (0, 3), read(1097, 98, 99, END))
    second, first, also_first = asked.answers()
    assert second is not None
    assert first is not None
    assert (second.start, second.end, second.text, second.log_probability, second.prefix) == (2, 3, "b", -1.0, (1097,))
    assert (first.start, first.end, first.text, first.prefix) == (0, 2, "aa", ())
    assert also_first == first
    assert [(one.token, one.text, one.log_probability) for one in second.tokens] == [(65, "A", -0.5), (END, "", -9.0)]


def test_places_are_of_the_whole_translation() -> None:
    asked = AskedPlaces([5, 3], Letters())
    asked.look(0, 3, (0, 2), read(97, 98, 99, END))
    assert asked.are_open
    asked.look(4, 2, (3, 9), read(100, 101, END))
    found, between = asked.answers()
    assert found is not None
    assert (found.text, found.start, found.prefix, found.source) == ("e", 5, (100,), (3, 9))
    assert between is None, "what stands between sentences is no token"
    assert not asked.are_open


def test_a_place_behind_the_translation_is_its_end() -> None:
    asked = AskedPlaces([99], Letters())
    asked.look(0, 1, (0, 1), read(97, END))
    asked.look(2, 1, (2, 3), read(98, END))
    (end,) = asked.answers()
    assert end is not None
    assert (end.text, end.start, end.end, end.prefix, end.source) == ("", 3, 3, (98,), (2, 3))


@pytest.mark.parametrize("place", [0, 99])
def test_where_something_was_put_back_nothing_is_known(place: int) -> None:
    asked = AskedPlaces([place], Letters())
    asked.look(0, 4, (0, 4), None)
    assert asked.answers() == (None,)


def test_an_empty_text_has_no_alternatives() -> None:
    assert AskedPlaces([0], Letters()).answers() == (None,)
