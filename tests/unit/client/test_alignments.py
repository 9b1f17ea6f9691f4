"""Links of a translation as the client gives them, and in the Pharaoh format."""

from __future__ import annotations

import dataclasses

import pytest

from dragoman.client import Link, Translation
from dragoman.client.pharaoh import pharaoh
from dragoman.client.replies import read_streamed
from dragoman.errors import RequestError

ABOUT = {"score": -1.0, "target_tokens": 3}


def test_pairs_are_numbers_of_words_between_spaces() -> None:
    source, text = "a  big house.", "ein  großes\nHaus."
    links = (Link(0, 1, 0, 3), Link(3, 6, 5, 11), Link(7, 12, 12, 16), Link(12, 13, 16, 17))
    translation = dataclasses.replace(Translation.of_nothing(), text=text, alignment=links)
    assert pharaoh(source, translation) == "0-0 1-1 2-2"
    assert not pharaoh("", Translation.of_nothing())


def test_links_are_read_from_the_details() -> None:
    links = [[[0, 1, 0, 2], [2, 3, 3, 4]]]
    found = read_streamed("ab c", {"texts": [{**ABOUT, "alignment": links}]}, 0.1)
    assert found.alignment == (Link(0, 1, 0, 2), Link(2, 3, 3, 4))
    assert read_streamed("ab c", {"texts": [ABOUT]}, 0.1).alignment == ()


@pytest.mark.parametrize("links", [7, [7], [[[1, 2, 3]]], [[["a", 1, 2, 3]]], [[None]]])
def test_links_that_are_none_are_the_servers_fault(links: object) -> None:
    with pytest.raises(RequestError, match="can't be read"):
        read_streamed("ab c", {"texts": [{**ABOUT, "alignment": links}]}, 0.1)
