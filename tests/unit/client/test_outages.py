"""A server that is killed, hangs or restarts while 16 threads call it, with the client's defaults: no call fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_triton import OVERLOADED, ScriptedTriton, until_cancelled

from dragoman.client import AsyncTranslator, RetryPolicy, Translator
from dragoman.errors import DeadlineExceeded, RequestError, ServerError, TransportError

CALLERS = 16
SERVER = """
import signal, sys
sys.path.insert(0, sys.argv[1])
from fake_triton import ScriptedTriton
server = ScriptedTriton(port=int(sys.argv[2]))
print(server.port, flush=True)
signal.pause()
"""


class Process:
    """The scripted Triton as a process that can be killed, stopped and started again on its port."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-c", SERVER, str(Path(__file__).parent), str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def send(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()


@dataclass
class Load:
    """What 16 callers got, until they are told to stop."""

    answered: Counter[int] = field(default_factory=Counter)
    errors: list[RequestError] = field(default_factory=list)
    last_answer_at: float = 0.0

    def attempt(self, call: Callable[[], str], caller: int) -> None:
        try:
            assert call() == f"CALLER {caller}"
        except RequestError as error:
            self.errors.append(error)
        else:
            self.answered[caller] += 1
            self.last_answer_at = time.monotonic()

    def silent_s(self) -> float:
        return time.monotonic() - self.last_answer_at

    def all_answered_since(self, before: Counter[int]) -> Callable[[], bool]:
        return lambda: all(self.answered[caller] > before[caller] for caller in range(CALLERS))


@contextlib.contextmanager
def calling(translator: Translator, timeout_s: float | None = None) -> Iterator[Load]:
    load, stop = Load(), threading.Event()

    def call(caller: int) -> None:
        while not stop.is_set():
            load.attempt(lambda: translator.translate(f"caller {caller}", timeout_s=timeout_s).text, caller)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.kill()


Eventually = Callable[..., None]


def test_a_server_that_is_killed_and_restarted_fails_no_call(process: Process, eventually: Eventually) -> None:
    with Translator(process.url) as translator, calling(translator) as load:
        eventually(load.all_answered_since(Counter()))
        for _ in range(2):
            process.kill()
            before = Counter(load.answered)
            process.start()
            eventually(load.all_answered_since(before))
    assert load.errors == []


def test_a_server_that_hangs_and_is_killed_fails_no_call(process: Process, eventually: Eventually) -> None:
    with Translator(process.url) as translator, calling(translator) as load:
        eventually(load.all_answered_since(Counter()))
        process.send(signal.SIGSTOP)
        eventually(lambda: load.silent_s() > 2.5)  # as long as a supervisor takes to notice
        process.kill()
        before = Counter(load.answered)
        process.start()
        eventually(load.all_answered_since(before))
    assert load.errors == []


def test_calls_of_a_server_that_hangs_fail_only_by_their_deadline(process: Process, eventually: Eventually) -> None:
    with Translator(process.url) as translator, calling(translator, timeout_s=1.0) as load:
        eventually(load.all_answered_since(Counter()))
        process.send(signal.SIGSTOP)
        eventually(lambda: len(load.errors) >= CALLERS)
        process.send(signal.SIGCONT)
        before = Counter(load.answered)
        eventually(load.all_answered_since(before))
    assert {type(error) for error in load.errors} == {DeadlineExceeded}


def test_a_server_that_stops_under_load_and_comes_back_fails_no_call(eventually: Eventually) -> None:
    triton = ScriptedTriton()
    with Translator(triton.url) as translator, calling(translator) as load:
        eventually(load.all_answered_since(Counter()))
        triton.stop()  # ends its calls in the middle
        before = Counter(load.answered)
        triton = ScriptedTriton(port=triton.port)
        eventually(load.all_answered_since(before))
    triton.stop()
    assert load.errors == []


def test_async_callers_do_not_notice_either(process: Process) -> None:
    async def call_until(stop: threading.Event, translator: AsyncTranslator) -> int:
        calls = 0
        while not stop.is_set():
            assert (await translator.translate("hi")).text == "HI"
            calls += 1
        return calls

    async def main() -> list[int]:
        stop = threading.Event()
        async with AsyncTranslator(process.url) as translator:
            callers = [asyncio.ensure_future(call_until(stop, translator)) for _ in range(CALLERS)]
            await translator.translate("warm")
            await asyncio.to_thread(process.kill)
            await asyncio.to_thread(process.start)
            await translator.translate("back")
            stop.set()
            return await asyncio.gather(*callers)

    assert min(asyncio.run(main())) > 0


def test_waiting_for_a_server_leaves_the_budget_for_one_that_is_overloaded(process: Process) -> None:
    with Translator(process.url, retry=RetryPolicy(budget=1.0)) as translator:
        translator.translate("warm")
        process.kill()
        with pytest.raises(DeadlineExceeded, match="no server listens"):
            translator.translate("hi", timeout_s=1.5)
        triton = ScriptedTriton(port=process.port)
        try:
            triton.answers.append(OVERLOADED)
            assert translator.translate("hi").text == "HI"
        finally:
            triton.stop()
        process.start()


def test_a_begun_stream_ends_with_a_typed_error_when_its_server_goes(triton: ScriptedTriton) -> None:
    triton.answers.extend([lambda request, context: {}, until_cancelled])
    with Translator(triton.url) as translator:
        stream = translator.stream("hi")
        next(stream)
        triton.stop()
        with pytest.raises(TransportError):
            list(stream)


def test_lines_outlast_a_restart(process: Process) -> None:
    lines = [f"line {number}" for number in range(2000)]
    with Translator(process.url) as translator:
        found = []
        for number, translation in enumerate(translator.translate_lines(lines)):
            if number in (100, 900):
                process.kill()
                process.start()
            found.append(translation.text)
    assert found == [line.upper() for line in lines]


def test_an_address_that_never_answered_is_a_clear_error_after_seconds(triton: ScriptedTriton) -> None:
    triton.stop()
    began_at = time.monotonic()
    with Translator(triton.url, timeout_s=600) as translator, pytest.raises(ServerError, match="no server listens at"):
        translator.translate("hi")
    assert time.monotonic() - began_at < 120  # not as long as it might take
