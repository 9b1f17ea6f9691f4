"""The client while servers and their processes hang, end and are killed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from benchmarks.caller_threads import CallerThreads

from dragoman.client import Translator
from dragoman.errors import RequestError
from served import Server, eventually
from shared_sentences import SENTENCES


def test_a_server_that_hangs_is_left_out_within_seconds(server: Server, reference_bundle: Path) -> None:
    with Server.start([f"en-de={reference_bundle}"]) as other, Translator([server.grpc, other.grpc]) as translator:
        for _ in range(4):
            translator.translate("Thank you!", cache=False)
        frozen = [pid for pids in other.children().values() for pid in pids]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            for text in SENTENCES:
                assert translator.translate(text, cache=False).text
        finally:
            for pid in frozen:
                with contextlib.suppress(ProcessLookupError):  # its supervisor noticed, and has killed it
                    os.kill(pid, signal.SIGCONT)


def test_a_server_that_ends_costs_no_call(server: Server, reference_bundle: Path) -> None:
    with Translator(server.grpc) as plain, Server.start([f"en-de={reference_bundle}"]) as other:
        expected = [one.text for one in plain.translate(SENTENCES)]
        with Translator([server.grpc, other.grpc]) as translator:
            translator.translate("Thank you!")
            other.process.send_signal(signal.SIGTERM)
            found = []
            while other.process.poll() is None:
                found.append([translator.translate(text, cache=False).text for text in SENTENCES])
            found.append([translator.translate(text, cache=False).text for text in SENTENCES])
        assert all(one == expected for one in found)


@pytest.fixture(scope="module")
def own_server(reference_bundle: Path) -> Iterator[Server]:
    """A server whose processes may be killed."""
    with Server.start([f"en-de={reference_bundle}"]) as started:
        yield started


class Callers:
    """Sixteen threads that translate one after the other, with the client's defaults."""

    def __init__(self, address: str) -> None:
        self.answered: Counter[int] = Counter()
        self.errors: list[RequestError] = []
        self._translator = Translator(address)
        turns = (itertools.cycle([*SENTENCES[caller:], *SENTENCES[:caller]]) for caller in range(16))
        self._threads = CallerThreads(functools.partial(self._call, *each) for each in enumerate(turns))

    def __enter__(self) -> Callers:
        self._threads.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.__exit__()
        self._translator.close()

    def wait_until_all_were_answered_again(self, timeout_s: float = 60.0) -> None:
        before = Counter(self.answered)
        eventually(lambda: all(self.answered[caller] > before[caller] for caller in range(16)), timeout_s)

    def _call(self, caller: int, texts: Iterator[str]) -> None:
        try:
            assert self._translator.translate(next(texts), cache=False).text
            self.answered[caller] += 1
        except RequestError as error:
            self.errors.append(error)


@pytest.mark.parametrize(
    ("process", "blow"),
    [("engine", signal.SIGKILL), ("triton", signal.SIGKILL), ("engine", signal.SIGSTOP), ("triton", signal.SIGSTOP)],
    ids=["engine killed", "triton killed", "engine hangs", "triton hangs"],
)
def test_callers_do_not_notice_that_a_process_of_the_server_died(
    own_server: Server, process: str, blow: signal.Signals
) -> None:
    with Callers(own_server.grpc) as callers:
        callers.wait_until_all_were_answered_again()
        (victim,) = own_server.children()[process]
        os.kill(victim, blow)
        eventually(lambda: not psutil.pid_exists(victim), 60.0)  # the supervisor has replaced it, or is about to
        callers.wait_until_all_were_answered_again()
    assert callers.errors == []
