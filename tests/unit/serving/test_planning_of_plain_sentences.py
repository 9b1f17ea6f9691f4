"""Texts that are one plain sentence are planned at once, and as any other text would be."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from fake_bundle import fake_bundle
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import InvalidRequest
from dragoman.serving.process import loaded_bundle
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.options import RequestOptions
from dragoman.serving.text.document import Document

BUNDLE = fake_bundle()
PIECES = (
    *("a", "Is", "THE", " ", " ", ". ", "?", "!", "…", "Dr. ", "1", "- ", "• ", "\n", "\t", "%s", "@"),
    *("(b) ", "日", "。", ">>fra<<"),
)


def finished(plan: Generator[None, None, Document]) -> Document:
    def steps() -> Generator[None, None, None]:
        found.append((yield from plan))

    found: list[Document] = []
    for _ in steps():
        pass
    return found[0]


def planned(bundle: LoadedBundle, text: str, options: RequestOptions) -> tuple[object, ...] | str:
    try:
        document = finished(bundle.plan(text, options))
    except InvalidRequest as error:
        return str(error)
    return [part.text for part in document.parts], *document[1:]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join), st.sampled_from(["", '{"capitals": false}']))
def test_the_plan_is_that_of_any_other_text(text: str, options: str) -> None:
    read = BUNDLE.options.read(options.encode())
    at_once = planned(BUNDLE, text, read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BUNDLE, "_plan_at_once", lambda *_: None)
        assert planned(BUNDLE, text, read) == at_once


def test_nothing_is_drawn_up_for_a_plain_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the text went the long way")

    monkeypatch.setattr(loaded_bundle, "blocks_of", refuse)
    options = BUNDLE.options.read(b"")
    assert [part.text for part in finished(BUNDLE.plan("Where is it?", options)).parts] == ["Where is it?"]
    with pytest.raises(AssertionError, match="the long way"):
        finished(BUNDLE.plan("It is. Is it?", options))
