"""Runs work in a separate process: a native builder can crash or be stopped, and the export can still report it.

The job is sent as text to its stdin; progress comes as JSON lines from its stdout: {"share": 0.4}, {"error": "…"}, {"done":
true}. Both ends are here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from dragoman.errors import EngineBuildError
from dragoman.export.progress import Advance

__all__ = ["Ended", "Reporter", "run_apart"]

STOP_TIMEOUT_S = 5.0
"""How long a worker may take to stop before it is killed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended: with an error, with a crash, or well if there is neither. `noise`: its stderr."""

    complaint: str | None
    crash: str | None
    noise: str

    def last_words(self, lines: int = 1) -> str:
        """The end of what it printed."""
        printed = [line.strip()[:300] for line in self.noise.splitlines() if line.strip()]
        return " | ".join(printed[-lines:]) or "it printed nothing"


def run_apart(command: Sequence[str], order: str, advance: Advance) -> Ended:
    """Run `command` on `order`; whatever ends this call, no worker is left."""
    with tempfile.TemporaryFile("w+") as written, tempfile.TemporaryFile("w+", errors="replace") as noise:
        written.write(order)
        written.seek(0)
        last: dict[str, Any] = {}
        with _worker(command, written, noise) as (process, messages):
            for line in messages:
                last = json.loads(line)
                advance(last.get("share", 1.0))
            code = process.wait()
        noise.seek(0)
        silent = "error" not in last and "done" not in last
        return Ended(last.get("error"), _how(code) if silent else None, noise.read())


class Reporter:
    """The worker's end: reports its progress, a hundred times at most, and whether to continue.

    It takes over the real stdout and replaces it by stderr: libraries print wherever they like.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop, self._percent = stop or threading.Event(), -1
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def __call__(self, share: float) -> bool:
        if int(share * 100) > self._percent:
            self._percent = int(share * 100)
            self.say({"share": share})
        return not self._stop.is_set()

    def say(self, message: dict[str, object]) -> None:
        """Send one message."""
        try:
            print(json.dumps(message), file=self._stream, flush=True)
        except OSError:  # the parent has ended: the result is not needed
            self._stop.set()


@contextmanager
def _worker(command: Sequence[str], order: IO[str], noise: IO[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    process = subprocess.Popen(
        command,
        stdin=order,
        stdout=subprocess.PIPE,
        stderr=noise,
        text=True,
        encoding="utf-8",
    )
    messages = process.stdout
    if messages is None:  # never: it was asked for
        raise EngineBuildError("the build process has no pipe")
    try:
        yield process, messages
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        messages.close()


def _how(code: int) -> str:
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
