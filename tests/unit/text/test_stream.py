"""The chunks of a stream, joined, are the translation, in whatever order the parts of a document come back."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dragoman.serving.process.requests import TextState
from dragoman.serving.text.document import Document, Part, Restored
from dragoman.serving.text.stream import TextStream


def decode(tokens: Sequence[int]) -> str:
    """A character needs two tokens: until the second is there, its place is taken by a replacement character."""
    whole = "".join(chr(96 + tokens[at]) for at in range(0, len(tokens) - 1, 2))
    return whole + ("\ufffd" if len(tokens) % 2 else "")


gaps = st.text(" \n", max_size=2)
parts = st.lists(st.lists(st.integers(1, 26), max_size=3).map(lambda pairs: [*pairs, *pairs]), min_size=1, max_size=5)


@given(st.data(), parts)
def test_chunks_are_the_document_in_its_order(data: st.DataObject, tokens: list[list[int]]) -> None:
    document = Document(tuple(Part("x") for _ in tokens), tuple(data.draw(gaps) for _ in range(len(tokens) + 1)))
    stream = TextStream(document, decode)
    told = [0] * len(tokens)
    chunks: list[str] = []
    open_parts = list(range(len(tokens)))
    while open_parts:
        part = data.draw(st.sampled_from(open_parts))
        if told[part] < len(tokens[part]) and data.draw(st.booleans()):
            count = data.draw(st.integers(1, len(tokens[part]) - told[part]))
            chunks.append(stream.decided(part, tokens[part][told[part] : told[part] + count]))
            told[part] += count
        else:
            chunks.append(stream.finished(part, decode(tokens[part])))
            open_parts.remove(part)
    expected = document.gaps[0] + "".join(decode(each) + gap for each, gap in zip(tokens, document.gaps[1:], strict=True))
    assert "".join(chunks) == expected


def test_a_part_in_which_something_is_restored_is_one_chunk() -> None:
    parts = (Part("x", restore=lambda translation, links: Restored(f"<b>{translation}</b>", ())), Part("y"))
    stream = TextStream(Document(parts, ("", " ", "")), decode)
    assert [stream.decided(0, [1, 1]), stream.decided(1, [2, 2])] == ["", ""]
    assert stream.finished(0, "<b>a</b>") == "<b>a</b> b"


def test_an_unfinished_character_is_not_sent() -> None:
    stream = TextStream(Document((Part("x"),), ("", "")), decode)
    assert [stream.decided(0, [1]), stream.decided(0, [1]), stream.decided(0, [2])] == ["", "a", ""]
    assert stream.finished(0, "ab") == "b"


def test_a_text_without_parts_back_is_not_complete() -> None:
    text = TextState("x")
    text.plan(Document((Part("x"), Part("y")), ("", " ", "")), num_hypotheses=1)
    assert not text.is_complete
