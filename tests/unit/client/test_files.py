"""Translating files line by line."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import grpc
import pytest
from fake_triton import RESTARTING, SMALL, Refuse, ScriptedTriton, refuse_bad, translated

from dragoman.client import AsyncTranslator, Translator, Window
from dragoman.errors import InvalidRequest, TransportError, UsageError


def test_a_file_is_translated_line_by_line(translator: Translator, book: Path, tmp_path: Path) -> None:
    report = translator.translate_file(book, tmp_path / "book.de")
    assert (report.lines, report.resumed_lines) == (200, 0)
    assert (tmp_path / "book.de").read_text() == book.read_text().upper()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book.de", "book.en"]


def test_a_file_without_a_last_line_end_loses_nothing(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\nthree")
    translator.translate_file(tmp_path / "in", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"ONE\nTWO\n\nTHREE\n"


def test_an_empty_file_gives_an_empty_file(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"")
    assert translator.translate_file(tmp_path / "in", tmp_path / "out").lines == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_json_lines_hold_everything(translator: Translator, book: Path, tmp_path: Path) -> None:
    translator.translate_file(book, tmp_path / "out", output_format="json")
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [line["text"] for line in lines] == [f"LINE {number}" for number in range(1, 201)]
    assert lines[0]["timings"]["queue_ms"] == 1.5


def interrupted(translator: Translator, book: Path, output: Path, after: int) -> None:
    """A run that ends with Ctrl-C after so many lines."""

    def count(lines: int) -> None:
        if lines == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        translator.translate_file(book, output, on_progress=count, window=SMALL)


def test_an_interrupted_file_goes_on_where_it_stopped(
    translator: Translator, triton: ScriptedTriton, book: Path, tmp_path: Path
) -> None:
    interrupted(translator, book, tmp_path / "out", after=17)
    assert not (tmp_path / "out").exists()
    triton.received.clear()
    report = translator.translate_file(book, tmp_path / "out")
    assert (report.lines, report.resumed_lines) == (200, 17)
    assert (tmp_path / "out").read_text() == book.read_text().upper()
    assert {text for request in triton.received for text in request.texts} == {f"line {number}" for number in range(18, 201)}


def test_a_line_that_was_half_written_is_translated_again(translator: Translator, book: Path, tmp_path: Path) -> None:
    interrupted(translator, book, tmp_path / "out", after=5)
    with (tmp_path / "out.part").open("ab") as part:
        part.write(b"LINE 6 was torn")
    assert translator.translate_file(book, tmp_path / "out").resumed_lines == 5
    assert (tmp_path / "out").read_text() == book.read_text().upper()


@pytest.mark.parametrize("change", ["input", "options"])
def test_a_part_of_another_job_is_not_mixed_in(translator: Translator, book: Path, tmp_path: Path, change: str) -> None:
    interrupted(translator, book, tmp_path / "out", after=5)
    if change == "input":
        book.write_text("other\n" * 200)
    with pytest.raises(UsageError, match=f"the {change} changed"):
        translator.translate_file(book, tmp_path / "out", beam_size=4 if change == "options" else None)
    assert len((tmp_path / "out.part").read_text().splitlines()) == 5


def test_restart_throws_the_part_away(translator: Translator, book: Path, tmp_path: Path) -> None:
    interrupted(translator, book, tmp_path / "out", after=5)
    assert translator.translate_file(book, tmp_path / "out", beam_size=4, restart=True).resumed_lines == 0


def test_a_failure_keeps_what_was_translated(
    translator: Translator, triton: ScriptedTriton, book: Path, tmp_path: Path
) -> None:
    triton.answers.extend([lambda request, context: translated(request.texts)] * 3)
    triton.answers.append(Refuse(grpc.StatusCode.INTERNAL, "INTERNAL: request 17 failed"))
    with pytest.raises(Exception, match="request 17"):
        translator.translate_file(book, tmp_path / "out", window=Window(batch_size=2, in_flight=1))
    assert (tmp_path / "out.part").read_text().splitlines() == [f"LINE {number}" for number in range(1, 7)]


def test_a_server_that_is_down_leaves_no_trace(triton: ScriptedTriton, book: Path, tmp_path: Path) -> None:
    triton.stop()
    with Translator(triton.url) as translator, pytest.raises(TransportError):
        translator.translate_file(book, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["book.en"]


def test_a_file_that_is_not_utf8_names_line_and_byte(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"good\n" * 20 + "schön\n".encode("latin1"))
    with pytest.raises(UsageError, match=r"line 21 is not UTF-8 \(byte 0xf6 at 4\).*iconv"):
        translator.translate_file(tmp_path / "in", tmp_path / "out", window=SMALL)
    assert len((tmp_path / "out.part").read_text().splitlines()) > 0


@pytest.mark.parametrize("source", ["nowhere", "."])
def test_a_file_that_can_not_be_read_is_a_clear_error(translator: Translator, tmp_path: Path, source: str) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        translator.translate_file(tmp_path / source, tmp_path / "out")


def test_a_pipe_is_no_file_that_could_be_resumed(translator: Translator, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        translator.translate_file(tmp_path / "pipe", tmp_path / "out")


def test_a_file_without_lines_is_not_read_into_memory(translator: Translator, tmp_path: Path) -> None:
    with (tmp_path / "in").open("wb") as stream:
        stream.write(b"good\n")
        stream.truncate(50_000_000)
    with pytest.raises(UsageError, match="line 2 has more than 1,000,000 bytes"):
        translator.translate_file(tmp_path / "in", tmp_path / "out")


def test_an_output_that_can_not_be_written_is_a_clear_error(translator: Translator, book: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        translator.translate_file(book, tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize("is_document", [False, True])
def test_a_directory_or_a_device_is_never_replaced_by_the_output(
    translator: Translator, book: Path, tmp_path: Path, is_document: bool
) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        translator.translate_file(book, tmp_path, document=is_document)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is no regular file"):
        translator.translate_file(book, pipe, document=is_document)
    assert pipe.is_fifo()


def test_the_input_is_never_overwritten(translator: Translator, book: Path) -> None:
    with pytest.raises(UsageError, match="is the input"):
        translator.translate_file(book, book)


def test_an_async_file_resumes_and_names_its_bad_line(
    triton: ScriptedTriton, translator: Translator, book: Path, tmp_path: Path
) -> None:
    interrupted(translator, book, tmp_path / "out", after=5)

    async def main(source: Path, output: Path) -> int:
        async with AsyncTranslator(triton.url) as asynchronous:
            return (await asynchronous.translate_file(source, output, window=SMALL)).resumed_lines

    triton.answers.append(RESTARTING)
    assert asyncio.run(main(book, tmp_path / "out")) == 5
    assert (tmp_path / "out").read_text() == book.read_text().upper()
    triton.models["translate"] = refuse_bad
    (tmp_path / "in").write_text("1\n2\n3\nbad\n")
    with pytest.raises(InvalidRequest, match="line 4: a control"):
        asyncio.run(main(tmp_path / "in", tmp_path / "second"))
    assert (tmp_path / "second.part").read_text() == "1\n2\n3\n"
