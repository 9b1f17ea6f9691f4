"""Translating the lines of any source."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest
from fake_triton import SMALL, Outputs, Received, Refuse, ScriptedTriton, refuse_bad, translated, until_cancelled

from dragoman.client import AsyncTranslator, Translation, Translator
from dragoman.errors import Cancelled, InvalidRequest, RequestError


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


def test_a_job_of_many_lines_has_batch_priority(translator: Translator, triton: ScriptedTriton) -> None:
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
