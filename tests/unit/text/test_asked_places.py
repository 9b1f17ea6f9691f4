"""What else could stand at a place: places become tokens as the parts of a text are joined."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence

import pytest
from pretend import planned

from dragoman.serving.text.alternatives import AskedPlaces, ReadTarget, token_texts
from dragoman.serving.text.capitals import Capitals
from dragoman.serving.text.formats import TextFormat
from dragoman.serving.text.joining import JoinedHypothesis, JoinedPart, TextHypothesis
from dragoman.serving.text.places import Run

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
    count, length = len(tokens), sum(len(_text(token)) for token in tokens)
    runs = (Run(0, length, 0, length),)
    return ReadTarget(tokens, runs, [-float(at) for at in range(count)], [others] * count, [[-0.5, -9.0]] * count)


def test_a_place_belongs_to_the_token_that_covers_it() -> None:
    asked = AskedPlaces([2, 0, 1], Letters())
    asked.look(JoinedPart(0, 4), (0, 3), read(1097, 98, 99, END))
    second, first, also_first = asked.answers()
    assert second is not None
    assert first is not None
    assert (second.start, second.end, second.text, second.log_probability, second.prefix) == (2, 3, "b", -1.0, (1097,))
    assert (first.start, first.end, first.text, first.prefix) == (0, 2, "aa", ())
    assert also_first == first
    assert [(one.token, one.text, one.log_probability) for one in second.tokens] == [(65, "A", -0.5), (END, "", -9.0)]


def test_places_are_of_the_whole_translation() -> None:
    asked = AskedPlaces([5, 3], Letters())
    asked.look(JoinedPart(0, 3), (0, 2), read(97, 98, 99, END))
    assert asked.are_open
    asked.look(JoinedPart(4, 2), (3, 9), read(100, 101, END))
    found, between = asked.answers()
    assert found is not None
    assert (found.text, found.start, found.prefix, found.source) == ("e", 5, (100,), (3, 9))
    assert between is None, "what stands between sentences is no token"
    assert not asked.are_open


def test_a_place_behind_the_translation_is_its_end() -> None:
    asked = AskedPlaces([99], Letters())
    asked.look(JoinedPart(0, 1), (0, 1), read(97, END))
    asked.look(JoinedPart(2, 1), (2, 3), read(98, END))
    (end,) = asked.answers()
    assert end is not None
    assert (end.text, end.start, end.end, end.prefix, end.source) == ("", 3, 3, (98,), (2, 3))


@pytest.mark.parametrize("place", [0, 99])
def test_where_something_was_put_back_nothing_is_known(place: int) -> None:
    asked = AskedPlaces([place], Letters())
    asked.look(JoinedPart(0, 4), (0, 4), None)
    assert asked.answers() == (None,)


class Shared:
    """Tokens 1 and 3 are one character together; token 2 is special."""

    def decode(self, ids: Sequence[int]) -> str:
        return "x„" if 3 in ids else "x"

    def target_spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return [{7: (0, 1), 1: (1, 2), 2: (2, 2), 3: (1, 2)}[one] for one in ids]


def test_a_special_token_between_two_parts_of_a_character_repeats_none() -> None:
    assert token_texts(Shared(), (7, 1, 2, 3, 2)) == ["x", "", "", "„", ""]


def test_an_empty_text_has_no_alternatives() -> None:
    assert AskedPlaces([0], Letters()).answers() == (None,)


def tokens_at(text: str, text_format: TextFormat, places: Sequence[int], **options: object) -> list[str]:
    """The tokens, letters here, at places of a text that is translated by its own words; "-" where none stands."""
    document = planned(text, text_format, places=True, **options)  # type: ignore[arg-type]
    joined, asked = JoinedHypothesis(document.gaps[0]), AskedPlaces(places, Letters())
    for part, gap in zip(document.parts, document.gaps[1:], strict=True):
        written = part.written(part.text, (), tells_runs=True)
        placed = joined.add(TextHypothesis(written.text, 0.0, 1), gap)
        tokens = (*map(ord, part.text), END)
        asked.look(placed, part.source, None if written.runs is None else read(*tokens)._replace(runs=written.runs))
    answers, whole = asked.answers(), joined.whole().text
    for answer in answers:
        assert answer is None or text[slice(*answer.source)]
        assert answer is None or html.unescape(whole[answer.start : answer.end]).lower().endswith(answer.text.lower())
    return ["-" if answer is None else answer.text for answer in answers]


@pytest.mark.parametrize(
    ("text_format", "text", "expected"),
    [
        ("html", "<p>a <b>bc</b> d</p>", "---a ---bc---- d"),
        ("html", "a &lt;b", "a <<<<b"),
        ("html", "Go to {x} now", "Go to -------"),
        ("html", "Go {x} on. See it", "Go --------See it"),
        ("markdown", "- a *b*.", "--a -b-."),
        ("text", "GO ON NOW. See", "Go on now.-See"),
        ("xml", "<xliff><source>a</source></xliff>", "-" * 33),
    ],
)
def test_tokens_stand_among_what_was_put_back(text_format: TextFormat, text: str, expected: str) -> None:
    found = tokens_at(text, text_format, range(len(text)), capitals=Capitals("en", "en"))
    assert "".join(found) == expected


def test_texts_of_attributes_move_the_tokens_behind_them() -> None:
    text = '<b title="long words">a</b> <img alt="many"> c'
    assert tokens_at(text, "html", [0, 12, text.index("a<"), text.index("c", 40), 99], attributes=True) == [
        "-",
        "-",
        "a",
        "c",
        "",
    ]
