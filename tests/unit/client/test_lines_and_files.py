from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import pytest
from fake_triton import RESTARTING, Outputs, Received, Refuse, ScriptedTriton, translated, until_cancelled

from dragoman.client import AsyncTranslator, Translation, Translator, Window
from dragoman.errors import Cancelled, InvalidRequest, RequestError, TransportError, UsageError

SMALL = Window(batch_size=2, in_flight=3, held=2)


def refuse_bad(request: Received, context: grpc.ServicerContext) -> Outputs:
    if any("bad" in text for text in request.texts):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: a control character")
    return translated(request.texts)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.en"
    path.write_text("".join(f"line {number}\n" for number in range(1, 41)), encoding="utf-8")
    return path


def test_lines_come_back_in_order(translator: Translator) -> None:
    lines = [f"line {number}" for number in range(333)]
    assert [one.text for one in translator.translate_lines(lines)] == [line.upper() for line in lines]


def test_blank_lines_keep_their_place(translator: Translator, triton: ScriptedTriton) -> None:
    lines = ["", "one", " ", "", "", "", "two", ""]
    assert [one.text for one in translator.translate_lines(lines, window=SMALL)] == ["", "ONE", "", "", "", "", "TWO", ""]
    assert all(text.strip() for request in triton.received for text in request.texts)


def test_many_requests_are_on_their_way_at_once(translator: Translator, triton: ScriptedTriton) -> None:
    barrier = threading.Barrier(3)  # opens only when three requests are inside the server together

    def meet(request: Received, context: object) -> Outputs:
        barrier.wait(120)
        return translated(request.texts)

    triton.answers.extend([meet] * 6)
    assert len(list(translator.translate_lines([f"t{n}" for n in range(12)], window=SMALL))) == 12


def test_no_more_is_read_than_the_window_holds(translator: Translator) -> None:
    read = []

    def lines() -> Iterator[str]:
        for number in range(1000):
            read.append(number)
            yield f"t{number}"

    results = translator.translate_lines(lines(), window=SMALL)
    next(results)
    assert len(read) <= SMALL.batch_size * (SMALL.in_flight + SMALL.held + 1)
    results.close()  # type: ignore[attr-defined]


def test_a_slow_first_request_does_not_stop_the_others(translator: Translator, triton: ScriptedTriton) -> None:
    released = threading.Event()

    def first_waits_for_the_fifth(request: Received, context: object) -> Outputs:
        if "t8" in request.texts:
            released.set()
        elif "t0" in request.texts:
            assert released.wait(120)
        return translated(request.texts)

    triton.models["translate"] = first_waits_for_the_fifth  # and only three may be unanswered
    lines = [f"t{number}" for number in range(10)]
    assert [one.text for one in translator.translate_lines(lines, window=SMALL)] == [line.upper() for line in lines]


def test_stopping_cancels_what_is_on_its_way(
    translator: Translator, triton: ScriptedTriton, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    def only_the_first(request: Received, context: object) -> Outputs:
        return translated(request.texts) if "t0" in request.texts else until_cancelled(request, context)

    triton.models["translate"] = only_the_first
    results = translator.translate_lines((f"t{number}" for number in range(6)), window=SMALL)
    next(results)
    eventually(lambda: len(triton.received) == 3)
    results.close()  # type: ignore[attr-defined]
    assert all(request.cancelled.wait(120) for request in triton.received if "t0" not in request.texts)


def test_stopping_ends_requests_that_wait_for_another_try(translator: Translator, triton: ScriptedTriton) -> None:
    later = Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=60000: full")

    def only_the_first(request: Received, context: grpc.ServicerContext) -> Outputs:
        if "t0" not in request.texts:
            context.abort(later.code, later.message)
        return translated(request.texts)

    triton.models["translate"] = only_the_first
    results = translator.translate_lines((f"t{number}" for number in range(6)), window=SMALL)
    next(results)
    began_at = time.monotonic()
    results.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began_at < 50  # the server asked for a minute


def test_closing_ends_lines_that_another_thread_waits_for(
    triton: ScriptedTriton, other_triton: ScriptedTriton, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    for server in (triton, other_triton):
        server.models["translate"] = until_cancelled
    errors: list[RequestError] = []

    def read(results: Iterator[Translation]) -> None:
        try:
            next(results)
        except RequestError as error:
            errors.append(error)

    with Translator([triton.url, other_triton.url]) as translator:
        lines = translator.translate_lines((f"t{number}" for number in range(6)), window=SMALL)
        reading = threading.Thread(target=read, args=(lines,))
        reading.start()
        eventually(lambda: len(triton.received) + len(other_triton.received) == 3)
    reading.join(120)
    assert [type(error) for error in errors] == [Cancelled]


def test_the_blocking_translator_works_inside_a_running_event_loop(translator: Translator) -> None:
    async def main() -> list[str]:
        return [one.text for one in translator.translate_lines(["one", "two"])] + [translator.translate("three").text]

    assert asyncio.run(main()) == ["ONE", "TWO", "THREE"]


def test_a_job_of_many_lines_gives_way_to_people(translator: Translator, triton: ScriptedTriton) -> None:
    list(translator.translate_lines(["one"]))
    assert triton.received[0].options["priority"] == "batch"


def test_a_bad_line_is_named_and_those_before_it_are_kept(translator: Translator, triton: ScriptedTriton) -> None:
    triton.models["translate"] = refuse_bad
    found = []
    with pytest.raises(InvalidRequest, match="line 6: a control character"):
        for one in translator.translate_lines(["1", "2", "3", "4", "5", "bad", "7"], window=SMALL):
            found.append(one.text)  # noqa: PERF401  # those before the error count
    assert found == ["1", "2", "3", "4", "5"]


def test_a_list_names_the_bad_text(translator: Translator, triton: ScriptedTriton) -> None:
    triton.models["translate"] = refuse_bad
    with pytest.raises(InvalidRequest, match="text 3: a control character"):
        translator.translate(["1", "2", "bad"])


def test_a_busy_server_only_slows_a_job_down(translator: Translator, triton: ScriptedTriton) -> None:
    triton.answers.extend([Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=1: full")] * 20)
    lines = [f"t{number}" for number in range(40)]
    assert [one.text for one in translator.translate_lines(lines, window=SMALL)] == [line.upper() for line in lines]


def test_a_file_is_translated_line_by_line(translator: Translator, book: Path, tmp_path: Path) -> None:
    report = translator.translate_file(book, tmp_path / "book.de")
    assert (report.lines, report.resumed_lines) == (40, 0)
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
    assert [line["text"] for line in lines] == [f"LINE {number}" for number in range(1, 41)]
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
    assert (report.lines, report.resumed_lines) == (40, 17)
    assert (tmp_path / "out").read_text() == book.read_text().upper()
    assert {text for request in triton.received for text in request.texts} == {f"line {number}" for number in range(18, 41)}


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
        book.write_text("other\n" * 40)
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


def test_async_lines_come_from_either_kind_of_source(triton: ScriptedTriton) -> None:
    async def source() -> AsyncIterator[str]:
        for number in range(25):
            yield f"t{number}"

    async def main() -> list[list[str]]:
        async with AsyncTranslator(triton.url) as translator:
            one = [result.text async for result in translator.translate_lines(source(), window=SMALL)]
            other = [result.text async for result in translator.translate_lines([f"t{n}" for n in range(25)])]
            return [one, other]

    assert asyncio.run(main()) == [[f"T{number}" for number in range(25)]] * 2


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
