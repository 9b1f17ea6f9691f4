"""Glossaries: whole words, the longest first, as they are written; and what is wrong with one is said with its line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pretend import planned

from dragoman.errors import InvalidRequest, ServeError
from dragoman.serving.text.glossary import Glossary, glossary_of_pairs, read_glossary


def found(glossary: Glossary, text: str) -> list[tuple[str, str | None]]:
    return [(text[match.start : match.end], match.target) for match in glossary.find(text)]


TERMS = glossary_of_pairs(
    [
        ("station", "Haltestelle"),
        ("railway station", "Bahnhof"),
        ("US", "USA"),
        ("Apple", "Apple"),
        ("火车", "Zug"),
        ("C++", "C++"),
    ]
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The railway  station.", [("railway  station", "Bahnhof")]),
        ("A station, stations, substation", [("station", "Haltestelle")]),
        ("Station! Railway station", [("Station", "Haltestelle"), ("Railway station", "Bahnhof")]),
        ("RAILWAY STATION", [("RAILWAY STATION", "BAHNHOF")]),
        ("He told us of the US", [("US", "USA")]),
        ("an apple by Apple", [("Apple", "Apple")]),
        ("坐火车去", [("火车", "Zug")]),
        ("in C++ or C", [("C++", "C++")]),
        ("railway railway station", [("railway station", "Bahnhof")]),
        ("the station-master", [("station", "Haltestelle")]),
    ],
)
def test_terms_are_found_as_whole_words_and_as_they_are_written(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(TERMS, text) == expected


def test_a_part_gets_the_terms_that_are_in_it() -> None:
    glossary = glossary_of_pairs([("dog", "Hund"), ("cat", "!Katze"), ("*", "!Tier")])
    first, second = planned("A dog here. A cat there.", "text", glossary=glossary).parts
    assert first.decoding is not None
    assert first.decoding["terms"] == ((tuple(map(ord, "Hund")),),)
    assert first.decoding["beam_size"] == 4
    assert first.decoding["bad_words"] == (tuple(map(ord, "Tier")),)
    assert second.decoding == {"bad_words": (tuple(map(ord, "Tier")), tuple(map(ord, "Katze")))}


def test_a_term_with_a_tilde_may_have_an_ending() -> None:
    glossary = glossary_of_pairs([("dog", "Hund~"), ("cat", "Katze"), ("cow", "!Kuh~")])
    (part,) = planned("DOG and a cat, a cow.", "text", glossary=glossary).parts
    assert part.decoding is not None
    assert part.decoding["phrases"] == ((tuple(map(ord, "HUND")),),)
    assert part.decoding["terms"] == ((tuple(map(ord, "Katze")),),)
    assert part.decoding["bad_words"] == (tuple(map(ord, "Kuh")),)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("a\tb\na\tc", "line 2: the term 'a' contradicts line 1"),
        ("a\tb\na\t!b", "line 2: the term 'a' contradicts line 1"),
        ("a\t!b\na\tb", "line 2: the term 'a' contradicts line 1"),
        ("a", "line 1: 1 columns"),
        ("\n\na\tb\tc", "line 3: 3 columns"),
        ("a\t", "line 1: a term needs a source and a target"),
        ("\tb", "line 1: a term needs a source and a target"),
        ("a\t~", "line 1: a term needs a source and a target"),
        ("a\tb\na\tb~", "line 2: the term 'a' contradicts line 1"),
        ("a\t!", "line 1: a term needs a source and a target"),
        ("a\t" + "b" * 201, "line 1: a term has more than 200 characters"),
        ("a " * 30 + "\tb", "line 1: the term .* has 30 words"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, lines: str, complaint: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(ServeError, match=complaint):
        read_glossary(path)


def test_a_file_with_a_byte_order_mark_and_windows_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffdog\tHund\r\n\r\ncat\tKatze\r\n".encode())
    assert found(read_glossary(path), "dog cat") == [("dog", "Hund"), ("cat", "Katze")]


def test_the_same_line_twice_is_no_contradiction() -> None:
    assert found(glossary_of_pairs([("a", "b"), ("a", "b")]), "a") == [("a", "b")]


def test_terms_of_a_request_are_named_by_their_number() -> None:
    with pytest.raises(InvalidRequest, match="option glossary, term 2: the term 'a' contradicts option glossary, term 1"):
        glossary_of_pairs([("a", "b"), ("a", "c")])


def test_finding_is_linear_in_text_and_terms() -> None:
    glossary = glossary_of_pairs([(" ".join(["a"] * count), f"b{count}") for count in range(1, 24)])
    began_s = time.process_time()
    assert len(found(glossary, "a " * 20_000)) == 870
    assert len(found(glossary, "a b " * 20_000)) == 20_000
    assert time.process_time() - began_s < 4.0
