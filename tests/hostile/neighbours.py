"""Small callers that go on all the time, in a process of their own, and how long each of their tokens was waited for.

    python -m hostile.neighbours HOST:PORT

One thread streams short sentences, one translates them, one asks for the server's status. Each answer is a line of JSON:
its kind, when it came (monotonic clock, which all processes share) and the seconds waited for it. It ends when its
standard input does. Its output goes to a file: a pipe would be full as soon as who reads it is busy for two seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import grpc

from served import Caller, StreamError, eventually

PAUSE_S = 0.01
_MOST_READ_BYTES = 1 << 26
TEXT = "Tom has never been there before, and he is not sorry for it. {}"


@dataclass(frozen=True, slots=True)
class Wait:
    """One token or answer, and the time from the one before it (or from the call)."""

    kind: str  # "first token", "token", "answer", "status", or "failed: …"
    at_s: float
    seconds: float


class Neighbours:
    """The process, as a context manager."""

    def __init__(self, address: str) -> None:
        self._waits: list[Wait] = []
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._at = 0
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hostile.neighbours", address],
            stdin=subprocess.PIPE,
            stdout=self._output,
            env=environment,
        )

    def __enter__(self) -> Neighbours:
        try:
            eventually(lambda: len(self._read()) > 20)
        except AssertionError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._output.close()

    def between(self, began_s: float, ended_s: float) -> list[Wait]:
        """Waits that overlap this time."""
        return [wait for wait in self._read() if wait.at_s >= began_s and wait.at_s - wait.seconds <= ended_s]

    def settled(self, after_s: float) -> None:
        """Wait until tokens and answers have come that were asked for after `after_s`: a stall is over then."""
        kinds = ("token", "answer")

        def seen() -> bool:
            later = {wait.kind for wait in self._read()[-500:] if wait.at_s - wait.seconds > after_s}
            return later.issuperset(kinds)

        eventually(seen, timeout_s=60)

    def _read(self) -> list[Wait]:
        """What it has written so far."""
        written = os.pread(self._output.fileno(), _MOST_READ_BYTES, self._at)
        whole, _, _ = written.rpartition(b"\n")
        if whole:
            self._at += len(whole) + 1
            self._waits += [Wait(*json.loads(line)) for line in whole.split(b"\n")]
        return self._waits


def longest_s(waits: list[Wait], *kinds: str) -> float:
    """The longest wait of those kinds."""
    return max((wait.seconds for wait in waits if wait.kind in kinds), default=0.0)


def failures(waits: list[Wait]) -> list[str]:
    """What the neighbours were refused or lost."""
    return [wait.kind for wait in waits if wait.kind.startswith("failed")]


class _Talker:
    """One thread of the process."""

    def __init__(self, address: str, stop: threading.Event, lock: threading.Lock) -> None:
        self._caller, self._stop, self._lock = Caller(address), stop, lock
        self._number = 0

    def repeat(self, work: Callable[[], None]) -> None:
        while not self._stop.wait(PAUSE_S):
            self._number += 1
            began_s = time.monotonic()
            try:
                work()
            except (grpc.RpcError, StreamError) as error:
                said = error.details() if isinstance(error, grpc.RpcError) else str(error)
                self._tell(f"failed: {(said or '')[:60]}", began_s)
        self._caller.close()

    def stream(self) -> None:
        before_s, kind = time.monotonic(), "first token"
        for _ in self._caller.stream(TEXT.format(self._number), beam_size=1, cache=False):
            before_s, kind = self._tell(kind, before_s), "token"

    def translate(self) -> None:
        before_s = time.monotonic()
        self._caller.translate([TEXT.format(self._number)], beam_size=1, max_length=4, cache=False)
        self._tell("answer", before_s)

    def status(self) -> None:
        before_s = time.monotonic()
        self._caller.status()
        self._tell("status", before_s)

    def _tell(self, kind: str, before_s: float) -> float:
        now_s = time.monotonic()
        with self._lock:
            print(json.dumps([kind, now_s, now_s - before_s]), flush=True)
        return now_s


def main() -> None:
    stop, lock = threading.Event(), threading.Lock()
    talkers = [_Talker(sys.argv[1], stop, lock) for _ in range(3)]
    work = [talkers[0].stream, talkers[1].translate, talkers[2].status]
    threads = [threading.Thread(target=talker.repeat, args=(each,)) for talker, each in zip(talkers, work, strict=True)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join(10)


if __name__ == "__main__":
    main()
