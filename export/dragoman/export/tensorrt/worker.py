"""A process for one build of an engine; `apart` says how the two ends talk."""

from __future__ import annotations

import signal
import sys
import threading

from dragoman.errors import EngineBuildError
from dragoman.export.tensorrt.apart import Reporter
from dragoman.export.tensorrt.compilation import Job, compile_engine

__all__ = ["main"]


def main() -> int:
    """Build the job on stdin."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    report = Reporter(stop)
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
