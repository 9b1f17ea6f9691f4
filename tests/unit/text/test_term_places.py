"""Terms that the search has put at the wrong place take the place of what their source was translated as."""

from __future__ import annotations

import time

import pytest
from pretend import planned

from dragoman.serving.text.glossary import glossary_of_pairs
from dragoman.serving.text.links import Link
from dragoman.serving.text.stream import TextStream
from dragoman.serving.text.term_places import PartTerms, Term


def linked(source: str, translation: str, pairs: str) -> list[Link]:
    """Links of words by their numbers: 0-1 links the first word of the source with the second of the translation."""

    def spans(text: str) -> list[tuple[int, int]]:
        found, at = [], 0
        for word in text.split():
            at = text.index(word, at)
            found.append((at, at + len(word.rstrip(".,"))))
            at += len(word)
        return found

    ours, theirs = spans(source), spans(translation)
    return [Link(*ours[int(pair.split("-")[0])], *theirs[int(pair.split("-")[1])]) for pair in pairs.split()]


def terms_of(source: str, terms: dict[str, str]) -> list[Term]:
    return [
        Term(source.index(word), source.index(word) + len(word), target.rstrip("~"), target.endswith("~"))
        for word, target in terms.items()
    ]


STATION = "The station is closed."


@pytest.mark.parametrize(
    ("source", "terms", "translation", "pairs", "expected"),
    [
        # Behind the end, before the beginning, and beside the word itself.
        (STATION, {"station": "Halt"}, "Der Bahnhof ist zu Halt.", "0-0 1-1 2-2 3-3 3-4", "Der Halt ist zu."),
        (STATION, {"station": "Halt"}, "Halt der Bahnhof ist zu.", "0-0 0-1 1-2 2-3 3-4", "Der Halt ist zu."),
        (STATION, {"station": "Halt"}, "Der Halt Bahnhof ist zu.", "0-0 0-1 1-2 2-3 3-4", "Der Halt ist zu."),
        ("Dogs bark.", {"Dogs": "Hund~"}, "Tiere bellen Hunde.", "0-0 1-1 1-2", "Hunde bellen."),
        # Two that change places; two for neither of which there is another word.
        (
            "Cats eat mice.",
            {"Cats": "Katzen", "mice": "Ratten"},
            "Ratten Katzen Tiere essen Nager.",
            "1-0 1-1 0-2 1-3 2-4",
            "Katzen essen Ratten.",
        ),
        ("Cats eat mice.", {"Cats": "Katzen", "mice": "Ratten"}, "Katzen Ratten.", "2-0 0-1", "Katzen Ratten."),
        # What stands right, with another word beside it; what is not there; what is part of another word.
        (STATION, {"station": "Halt"}, "Der Halt ist zu, Bahnhof.", "0-0 1-1 2-2 3-3 1-4", "Der Halt ist zu, Bahnhof."),
        (STATION, {"station": "Halt"}, "Der Bahnhof ist zu.", "0-0 1-1 2-2 3-3", "Der Bahnhof ist zu."),
        (STATION, {"station": "Halt"}, "Der Bahnhof ist Halt-los.", "0-0 1-1 2-2 3-3", "Der Bahnhof ist Halt-los."),
        # No letters to take the place of.
        (STATION, {"station": "Halt"}, "Der – ist zu Halt.", "0-0 1-1 2-2 3-3 3-4", "Der – ist zu Halt."),
    ],
)
def test_a_term_goes_to_the_word_that_its_source_became(
    source: str, terms: dict[str, str], translation: str, pairs: str, expected: str
) -> None:
    part = PartTerms(source, terms_of(source, terms))
    text, links = part.in_place(translation, linked(source, translation, pairs))
    assert text == expected
    if text != translation:
        placed = {source[link.source_start : link.source_end]: text[link.target_start : link.target_end] for link in links}
        assert all(placed[word].startswith(target.rstrip("~")) for word, target in terms.items())


def test_links_of_other_words_move_with_them() -> None:
    translation = "Halt der Bahnhof ist zu."
    text, links = PartTerms(STATION, terms_of(STATION, {"station": "Halt"})).in_place(
        translation, linked(STATION, translation, "0-0 0-1 1-2 2-3 3-4")
    )
    pairs = [(STATION[link.source_start : link.source_end], text[link.target_start : link.target_end]) for link in links]
    assert pairs == [("The", "Der"), ("station", "Halt"), ("is", "ist"), ("closed", "zu")]


def test_no_term_takes_the_place_of_a_stand_in() -> None:
    translation = "Boston ist zu Halt."
    links = linked(STATION, translation, "1-0 2-1 3-2 3-3")
    assert (
        PartTerms(STATION, terms_of(STATION, {"station": "Halt"}), ["Boston"]).in_place(translation, links)[0] == translation
    )
    assert PartTerms(STATION, terms_of(STATION, {"station": "Halt"})).in_place(translation, links)[0] == "Halt ist zu."


def test_terms_in_a_script_without_spaces_move_as_they_are() -> None:
    source, translation = "I like trains.", "我喜欢汽车火车。"
    links = [Link(0, 1, 0, 1), Link(2, 6, 1, 3), Link(7, 13, 3, 5), Link(2, 6, 5, 7)]
    assert PartTerms(source, [Term(7, 13, "火车")]).in_place(translation, links)[0] == "我喜欢火车。"


def test_a_part_with_terms_is_aligned_and_streamed_as_a_whole() -> None:
    glossary = glossary_of_pairs([("dog", "Hund"), ("cat", "!Katze")])
    document = planned("A dog here. A cat there.", "text", glossary=glossary)
    first, second = document.parts
    assert first.terms == PartTerms("A dog here.", [Term(2, 5, "Hund")], [])
    assert first.needs_links
    assert second.terms is None  # a word that must not occur has no place
    assert not second.needs_links
    stream = TextStream(document, lambda tokens: "".join(map(chr, tokens)))
    assert stream.decided(0, tuple(map(ord, "Hier ein "))) == ""
    assert stream.finished(0, "Ein Hund hier.") == "Ein Hund hier. "


def test_placing_takes_linear_time() -> None:
    def duration_s(words: int) -> float:
        source = " ".join(["dog"] * words)
        translation = " ".join(["Tier Hund"] * words)
        links = [Link(4 * at, 4 * at + 3, 10 * at + 5 * odd, 10 * at + 5 * odd + 4) for at in range(words) for odd in (0, 1)]
        terms = PartTerms(source, [Term(4 * at, 4 * at + 3, "Hund") for at in range(24)])
        began_s = time.process_time()
        terms.in_place(translation, links)
        return time.process_time() - began_s

    assert min(duration_s(4000) for _ in range(3)) < 12 * min(duration_s(1000) for _ in range(3))
