"""A process for one build: the native builder can crash or be stopped, and the export goes on to say so.

The job comes as JSON on stdin; what happens goes as JSON lines to stdout: {"share": 0.4}, {"error": "…"}, {"done": true}.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

from dragoman.bundle.manifest import Profile
from dragoman.errors import EngineBuildError
from dragoman.export.tensorrt.compilation import Job, compile_engine

__all__ = ["job_from_json", "job_to_json", "main"]


def job_to_json(job: Job) -> str:
    """The job as one line."""
    return json.dumps({**dataclasses.asdict(job), "graph": str(job.graph), "engine": str(job.engine)})


def job_from_json(text: str) -> Job:
    """The job that `job_to_json` wrote."""
    raw: dict[str, Any] = json.loads(text)
    profiles = tuple(
        Profile(
            name=profile["name"],
            **{
                which: {name: tuple(shape) for name, shape in profile[which].items()}
                for which in ("minimum", "usual", "maximum")
            },
        )
        for profile in raw["profiles"]
    )
    return Job(raw["flavour"], Path(raw["graph"]), Path(raw["engine"]), tuple(raw["compute_capabilities"]), profiles)


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
        compile_engine(job_from_json(sys.stdin.read()), report)
    except KeyboardInterrupt:
        return 130
    except (EngineBuildError, OSError) as error:
        report.say({"error": str(error)})
        return 1
    report.say({"done": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
