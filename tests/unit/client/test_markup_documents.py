"""Long pages in pieces: each is translated as the whole would be, and what joins them is the whole."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from fake_triton import ScriptedTriton

from dragoman.client import Translator
from dragoman.client.documents import DocumentKind, Piece, kind_of_file, pieces_of
from dragoman.errors import DragomanError

sys.path.append(str(Path(__file__).parents[1] / "text"))
from pretend import translated  # the server's side of it

PARAGRAPH = "The <b>red</b> house is here and <i>nobody</i> lives in it. "
HTML = "<!DOCTYPE html><html><body>\n<div translate='no'>\n" + "<p>keep me</p>\n" * 900 + "</div>\n<!-- <p> -->\n"
HTML += (
    "".join(f"<div class=x><p>{PARAGRAPH * 3}</p><ul><li>One {n}<li>Two</ul></div>\n" for n in range(300))
    + "</body></html>\n"
)
XML = "<?xml version='1.0'?>\n<book title='A name'>\n" + "".join(
    f"<chapter n='{n}'>\n <p>{PARAGRAPH * 3}</p> <verse xml:space='preserve'>a  b</verse>\n</chapter>\n" for n in range(200)
)
XML += "</book>\n"
XLIFF = "<xliff version='1.2'><file><body>\n" + "".join(
    f"<trans-unit id='{n}'><source>{PARAGRAPH}</source>\n<target/></trans-unit>\n" for n in range(600)
)
XLIFF += "</body></file></xliff>\n"
MARKDOWN = "---\ntitle: x\n\nmore: y\n---\n# Title\n\n" + "".join(
    f"Words with [a link][ref], [Other] and *emphasis* {n}.\nA second line.\n\n- one\n\n  more of it\n- two\n\n"
    "```\ncode\n\n# not a title\n```\n\n"
    for n in range(500)
)
MARKDOWN += "[ref]: http://a.b\n[other]:\n  http://c.d 'T'\n"
DOCUMENTS: dict[str, tuple[DocumentKind, str]] = {
    "html": ("html", HTML), "xml": ("xml", XML), "xliff": ("xml", XLIFF), "markdown": ("markdown", MARKDOWN),
}  # fmt: skip


def swapped(text: str) -> str:
    return text.swapcase()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_joined_pieces_are_the_translation_of_the_whole(name: str) -> None:
    kind, document = DOCUMENTS[name]
    pieces = list(pieces_of(document, kind))
    assert len(pieces) > 2
    assert all(len(piece.sent) < 40_000 for piece in pieces)
    assert "".join(piece.before + piece.text for piece in pieces) == document
    joined = "".join(
        piece.written(translated(piece.sent, kind, swapped, attributes=name == "xml")) if piece.text else piece.before
        for piece in pieces
    )
    assert joined == translated(document, kind, swapped, attributes=name == "xml")


def test_a_short_document_is_one_piece() -> None:
    assert [piece.sent for piece in pieces_of("<p>a</p>", "html") if piece.text] == ["<p>a</p>"]


def test_a_server_that_changes_the_context_is_noticed() -> None:
    with pytest.raises(DragomanError, match="surrounds a piece"):
        Piece("", "a", context=("<b>", "")).written("a")


@pytest.mark.parametrize(
    ("name", "text_format", "is_document", "kind"),
    [
        ("a.html", None, None, "html"),
        ("a.MD", None, None, "markdown"),
        ("a.xlf", None, None, "xml"),
        ("a.txt", None, None, None),
        ("a.txt", None, True, "text"),
        ("a.html", None, False, None),
        ("a.html", "text", None, None),
        ("a.txt", "xml", None, "xml"),
        ("a.srt", None, None, "subtitles"),
    ],
)
def test_names_and_formats_say_what_a_file_is(
    name: str, text_format: str | None, is_document: bool | None, kind: DocumentKind | None
) -> None:
    assert kind_of_file(Path(name), text_format, is_document) == kind


@pytest.mark.parametrize(
    "unit", ["<", "<a ", "<a b='", "<!--", "</a>", "<p>", "<a><b>", "[", "[a]: b\n", "```\n", "\n\na", "<!DOCTYPE a ["]
)
@pytest.mark.parametrize("kind", ["html", "xml", "markdown"])
def test_cutting_hostile_documents_takes_bounded_time(unit: str, kind: DocumentKind) -> None:
    document = unit * (60_000 // len(unit))
    began_s = time.process_time()
    pieces = list(pieces_of(document, kind))
    assert time.process_time() - began_s < 5.0
    assert "".join(piece.before + piece.text for piece in pieces) == document


def test_a_page_is_translated_as_html_by_its_name(translator: Translator, triton: ScriptedTriton, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>a</p>\n" * 4000, encoding="utf-8")
    translator.translate_file(tmp_path / "page.html", tmp_path / "out.html")
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == "<P>A</P>\n" * 4000
    assert {request.options.get("format") for request in triton.received} == {"html"}
