"""Links between words, from what tokens look at."""

from __future__ import annotations

import numpy as np

from dragoman.serving.text.aligning import SpannedText, links_between
from dragoman.serving.text.links import Link


def one_hot(source_tokens: int, *looks: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.eye(source_tokens, dtype=np.float32)[list(looks)]


def words(source: SpannedText, target: SpannedText, links: tuple[Link, ...]) -> list[tuple[str, str]]:
    return [(source.text[a.source_start : a.source_end], target.text[a.target_start : a.target_end]) for a in links]


def test_tokens_of_one_word_are_linked_together() -> None:
    source = SpannedText("the station.", [(0, 3), (3, 7), (7, 11), (11, 12), (12, 12)])
    target = SpannedText("der Bahnhof.", [(0, 3), (3, 8), (8, 11), (11, 12), (12, 12)])
    links = links_between(source, target, one_hot(5, 0, 1, 2, 3, 4))
    assert words(source, target, links) == [("the", "der"), ("station", "Bahnhof"), (".", ".")]


def test_tokens_of_a_script_without_spaces_are_words() -> None:
    source, target = SpannedText("我爱猫", [(0, 1), (1, 2), (2, 3)]), SpannedText("I love cats", [(0, 1), (1, 6), (6, 11)])
    assert words(source, target, links_between(source, target, one_hot(3, 0, 1, 2))) == [
        ("我", "I"),
        ("爱", "love"),
        ("猫", "cats"),
    ]


def test_a_word_that_attends_to_two_is_linked_with_both() -> None:
    source, target = SpannedText("look up", [(0, 4), (4, 7)]), SpannedText("nachschlagen", [(0, 12)])
    links = links_between(source, target, np.array([[0.5, 0.45]], np.float32))
    assert words(source, target, links) == [("look", "nachschlagen"), ("up", "nachschlagen")]


def test_special_tokens_and_spaces_are_linked_with_nothing() -> None:
    source, target = SpannedText("a ", [(0, 1), (1, 2), (2, 2)]), SpannedText("b", [(0, 1), (1, 1)])
    links = links_between(source, target, one_hot(3, 2, 2))
    assert words(source, target, links) == [("a", "b")]
    assert links_between(SpannedText(" ", [(0, 1)]), target, one_hot(1, 0, 0)) == ()
    assert links_between(source, SpannedText("", [(0, 0)]), one_hot(3, 0)) == ()


def test_several_tokens_of_one_character_are_one_word() -> None:
    source, target = SpannedText("☃ x", [(0, 1), (0, 1), (0, 1), (1, 3)]), SpannedText("☃", [(0, 1)])
    assert words(source, target, links_between(source, target, one_hot(4, 2))) == [("☃", "☃")]
