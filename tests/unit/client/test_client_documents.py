"""Whole documents: what is translated of them, and that everything else stays as it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_triton import ScriptedTriton
from hypothesis import given
from hypothesis import strategies as st

from calm import on_a_calm_machine
from dragoman.client import Translator
from dragoman.client.documents import DocumentKind, pieces_of
from dragoman.errors import UsageError

SUBTITLES = """1
00:00:01,000 --> 00:00:03,500
Where is the station,
please?

2
00:00:04,000 --> 00:00:05,000 X1:40 X2:600
Thank you.

3
00:00:06,000 --> 00:00:07,000

"""


def texts(document: str, kind: DocumentKind = "text") -> list[str]:
    return [piece.text for piece in pieces_of(document, kind) if piece.text]


def unchanged(document: str, kind: DocumentKind = "text") -> str:
    return "".join(piece.written(piece.text) for piece in pieces_of(document, kind))


def test_paragraphs_are_pieces_and_blank_lines_stay() -> None:
    document = "\n\nA title\n\n  One line\nand another.\r\n\r\n \nLast"
    assert texts(document) == ["A title", "One line\nand another.\r", "Last"]
    assert unchanged(document) == document


def test_a_paragraph_longer_than_a_request_may_be_is_cut_between_sentences() -> None:
    paragraph = "It rained all day. " * 2000
    found = texts(paragraph)
    assert unchanged(paragraph) == paragraph
    assert all(len(piece.encode()) <= 80_000 for piece in found)
    assert all(piece.rstrip().endswith("day.") for piece in found)


@given(st.text("ab. \n\r-\t。", max_size=200))
def test_pieces_are_the_text(document: str) -> None:
    assert unchanged(document) == document
    assert all(piece.strip() for piece in texts(document))


@given(st.text("a1 :->\n,0", max_size=120))
def test_no_subtitles_are_too_broken(document: str) -> None:
    written = unchanged(document, "subtitles")
    assert written.split() == document.split()


def test_cues_keep_their_numbers_and_times() -> None:
    assert texts(SUBTITLES, "subtitles") == ["Where is the station, please?", "Thank you."]
    balanced = SUBTITLES.replace("Where is the station,\nplease?", "Where is the\nstation, please?")
    assert unchanged(SUBTITLES, "subtitles") == balanced


def cue(text: str) -> str:
    return f"1\n00:00:01,000 --> 00:00:03,500\n{text}\n"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("1\n0:00:01,000 --> 0:00:02,000\nOne\n2\n0:00:03,000 --> 0:00:04,000\nTwo\n", ["One", "Two"]),  # no blank line
        ("1\n00:00:01,000 -> 00:00:02,000\nOne\n\n2\n00:00:03.000 --> 00:00:04.000\nTwo\n", ["One", "Two"]),
        ("1\n00:00:01,000 --> 00:00:02,000\nOne\n\ntwo\n2\n00:00:03,000 --> 00:00:04,000\n7\n", ["One", "two", "7"]),
        ("1\r00:00:01,000 --> 00:00:02,000\rOne\rtwo\r\r2\r00:00:03,000 --> 00:00:04,000\rThree\r", ["One two", "Three"]),
        ("1\n00:00:01,000 --> 00:00:02,000\n{\\an8}One\n", ["One"]),
        (
            "WEBVTT a film\nKind: captions\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\n"
            "first\n00:01.000 --> 00:02.000 align:start\nOne\n\n00:00:03.000 --> 00:00:04.000\nTwo\n\nNOTE\nmore\n",
            ["One", "Two"],
        ),
    ],
)
def test_cues_are_found_by_their_times(document: str, expected: list[str]) -> None:
    assert texts(document, "subtitles") == expected
    assert unchanged(document, "subtitles") == document


def test_lines_of_a_cue_end_as_those_of_the_file() -> None:
    said = cue("One and two\nand three").replace("\n", "\r\n")
    assert unchanged(said, "subtitles") == said


def test_the_end_of_a_page_ends_a_paragraph() -> None:
    document = "One\x0cTwo\n\x0c\nThree\x0b\x1dFour\x1c"
    assert texts(document) == ["One", "Two", "Three", "Four"]
    assert unchanged(document) == document


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("is_document", [True, False])
def test_a_file_in_utf_16_is_refused_with_the_way_out(
    translator: Translator, triton: ScriptedTriton, tmp_path: Path, encoding: str, is_document: bool
) -> None:
    source = tmp_path / "book.txt"
    source.write_bytes("It is late.\n".encode(encoding))
    named = encoding.replace("16-", "16")
    with pytest.raises(UsageError, match=f"looks like UTF-16; convert it first with iconv -f {named} -t utf-8"):
        translator.translate_file(source, tmp_path / "book.de", document=is_document)
    assert not triton.received


def test_what_two_people_say_stays_apart() -> None:
    said = cue("- Hello! And\nhow are you?\n- I am fine.\n– So am I.")
    assert texts(said, "subtitles") == ["- Hello! And how are you?\n- I am fine.\n– So am I."]
    assert unchanged(said, "subtitles") == said
    (piece, _) = pieces_of(said, "subtitles")
    assert piece.written("Two words") == cue("Two words").rstrip()  # the model may say less


def test_tags_of_subtitles_are_html_and_all_else_in_them_is_text() -> None:
    said = (
        cue("<i>Where is</i> the station &amp;\nAT&T < 3?") + "\n" + cue("<font color='red'>- Who</font>\n- Me & <b>you</b>")
    )
    assert texts(said, "subtitles") == [
        "<i>Where is</i> the station &amp;amp; AT&amp;T &lt; 3?",
        "<font color='red'>- Who</font><br>- Me &amp; <b>you</b>",
    ]
    assert unchanged(said, "subtitles").split() == said.split()
    assert unchanged(said, "subtitles").splitlines()[-2:] == said.splitlines()[-2:]


def test_subtitles_with_tags_are_sent_as_html(translator: Translator, triton: ScriptedTriton, tmp_path: Path) -> None:
    source = tmp_path / "film.srt"
    source.write_text(cue("<i>Hello</i> you & me"), encoding="utf-8")
    translator.translate_file(source, tmp_path / "film.de.srt")
    (request,) = triton.received
    assert (request.options["format"], request.texts) == ("html", ["<i>Hello</i> you &amp; me"])


@pytest.mark.parametrize(
    "unit", ["<i>", "<", "- a\n", "&", "a", "1", " ", "\n", "a\n", "1:", "00:00:01,000 --> ", ". ", "\n \n"]
)
@pytest.mark.parametrize("kind", ["text", "subtitles"])
@on_a_calm_machine
def test_cutting_takes_linear_time(unit: str, kind: DocumentKind) -> None:
    def seconds(length: int) -> float:
        document = (unit * length)[:length]
        began_s = time.thread_time()
        list(pieces_of(document, kind))
        return time.thread_time() - began_s

    # Quadratic time would be 256 times as long, far beyond what garbage collection and cold caches add to 16.
    once, sixteen_times = (min(seconds(length) for _ in range(2)) for length in (20_000, 320_000))
    assert sixteen_times <= 64 * max(once, 0.001)


def test_subtitles_are_translated_as_a_document(translator: Translator, triton: ScriptedTriton, tmp_path: Path) -> None:
    source, output = tmp_path / "film.srt", tmp_path / "film.de.srt"
    source.write_text(SUBTITLES, encoding="utf-8")
    report = translator.translate_file(source, output)
    expected = SUBTITLES.replace("Where is the station,\nplease?", "WHERE IS THE\nSTATION, PLEASE?")
    assert output.read_text(encoding="utf-8") == expected.replace("Thank you.", "THANK YOU.")
    assert report.lines == 2
    assert [text for request in triton.received for text in request.texts] == ["Where is the station, please?", "Thank you."]


def test_a_text_is_a_document_when_asked(translator: Translator, triton: ScriptedTriton, tmp_path: Path) -> None:
    source, output = tmp_path / "book.txt", tmp_path / "book.de"
    source.write_bytes(b"\xef\xbb\xbfOne\r\ntwo.\r\n\r\n\tThree.\r\n")
    done: list[int] = []
    translator.translate_file(source, output, document=True, split="line", on_progress=done.append)
    assert output.read_bytes() == b"ONE\r\nTWO.\r\n\r\n\tTHREE.\r\n"
    assert done == [1, 2]
    assert triton.received[0].options["split"] == "line"


def test_subtitles_may_be_lines(translator: Translator, tmp_path: Path) -> None:
    source, output = tmp_path / "film.srt", tmp_path / "film.de.srt"
    source.write_text("a\n1\n", encoding="utf-8")
    assert translator.translate_file(source, output, document=False).lines == 2


def test_a_failed_document_leaves_what_was_there(translator: Translator, tmp_path: Path) -> None:
    source, output = tmp_path / "book.txt", tmp_path / "book.de"
    source.write_bytes(b"\xff")
    output.write_text("before", encoding="utf-8")
    with pytest.raises(UsageError, match="is not UTF-8"):
        translator.translate_file(source, output, document=True)
    with pytest.raises(UsageError, match="is the input"):
        translator.translate_file(output, output, document=True)
    with pytest.raises(UsageError, match="no JSON lines"):
        translator.translate_file(source, output, document=True, output_format="json")
    assert output.read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book.de", "book.txt"]
