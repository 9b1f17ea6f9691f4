"""Engine and Triton are killed and stopped under the real client with its defaults; callers should not notice."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.caller_threads import CallerThreads

from dragoman.client import Translator
from dragoman.errors import DeadlineExceeded, DragomanError
from hostile.deaths import Deaths
from hostile.report import Row, judged
from served import Server, eventually

THREADS = 16
BEFORE_S, AFTER_S = 2.0, 4.0
"""Load before the accident, and after the server answers again."""

ACCIDENTS = (
    ("engine", signal.SIGKILL),
    ("triton", signal.SIGKILL),
    ("engine", signal.SIGSTOP),
    ("triton", signal.SIGSTOP),
)


@dataclass
class Callers:
    """Threads that share one Translator and call it without a pause."""

    address: str
    answered_at_s: list[float] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Callers:
        self._translator = Translator(self.address)
        numbers = (itertools.count(first, THREADS) for first in range(THREADS))
        self._threads = CallerThreads(functools.partial(self._call, each) for each in numbers).__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self._threads.__exit__()
        self._translator.close()

    @property
    def calls(self) -> int:
        return len(self.answered_at_s) + len(self.failures)

    def answered_since(self, at_s: float) -> int:
        return sum(1 for each in self.answered_at_s[-2000:] if each > at_s)

    def silence_s(self) -> float:
        """The longest time in which no call was answered."""
        times = sorted(self.answered_at_s)
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def _call(self, numbers: Iterator[int]) -> None:
        text = f"Tom has {next(numbers)} books and is reading one of them."
        try:
            self._translator.translate(text, cache=False)
            self.answered_at_s.append(time.monotonic())
        except DragomanError as error:
            self.failures.append(error)


def survived(server: Server, deaths: Deaths, what: str, how: signal.Signals) -> Row:
    """A row for one accident: failed calls and seconds of silence."""
    deaths.whole()
    before = deaths.counted()
    with Callers(server.grpc) as callers:
        eventually(lambda: callers.calls > THREADS)
        _wait(BEFORE_S)
        (pid,) = server.children()[what]
        struck_s = time.monotonic()
        os.kill(pid, how)
        eventually(lambda: pid not in server.children()[what], timeout_s=40)
        eventually(lambda: callers.answered_since(time.monotonic() - 0.5) > THREADS, timeout_s=40)
        _wait(AFTER_S)
    deaths.whole()
    died = deaths.counted() - before
    died -= Counter({what: 1})  # that one was killed here
    figures = {
        "failed": len(callers.failures),
        "silence s": round(callers.silence_s(), 2),
        "back after s": round(min((t for t in callers.answered_at_s if t > struck_s + 0.05), default=0.0) - struck_s, 2),
    }
    return judged(f"{how.name} of {what}", callers.calls, died, _wrong(callers, what, how), figures)


def _wrong(callers: Callers, what: str, how: signal.Signals) -> list[str]:
    """Failures that no caller may see: after Triton's SIGSTOP those are allowed whose deadline passed."""
    allowed = (DeadlineExceeded,) if (what, how) == ("triton", signal.SIGSTOP) else ()
    return [f"{type(error).__name__}: {error}" for error in callers.failures if not isinstance(error, allowed)]


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
