"""A process for one build: the native builder can crash or be stopped, and the export goes on to say so.

The job comes as JSON on stdin; what happens goes as JSON lines to stdout: {"share": 0.4}, {"error": "…"}, {"done": true}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import IO

from dragoman.errors import EngineBuildError
from dragoman.export.tensorrt.compilation import Job, compile_engine

__all__ = ["main"]


class _Reporter:
    """Tells the parent how far the build is, a hundred times at most, and whether the build should go on."""

    def __init__(self, stream: IO[str], stop: threading.Event) -> None:
        self._stream, self._stop, self._percent = stream, stop, -1

    def __call__(self, share: float) -> bool:
        if int(share * 100) > self._percent:
            self._percent = int(share * 100)
            self.say({"share": share})
        return not self._stop.is_set()

    def say(self, message: dict[str, object]) -> None:
        try:
            print(json.dumps(message), file=self._stream, flush=True)
        except OSError:  # the parent is gone: nobody wants the engine
            self._stop.set()


def main() -> int:
    """Build the job on stdin."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    # The library may print to stdout; the messages keep the real one for themselves.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    report = _Reporter(messages, stop)
    try:
        compile_engine(Job.from_json(sys.stdin.read()), report)
    except KeyboardInterrupt:
        return 130
    except (EngineBuildError, OSError) as error:
        report.say({"error": str(error)})
        return 1
    report.say({"done": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
