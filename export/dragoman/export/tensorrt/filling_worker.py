"""A process that fills the engine cache: with the libraries a server has, not those that torch brought into the export.

The order on stdin is {"bundle": "…", "cache": "…"}, or {} to find out whether TensorRT works here at all.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.export.tensorrt.apart import Reporter
from dragoman.export.tensorrt.filling import fill, try_out

__all__ = ["main"]


def main() -> int:
    """Fill the cache, or try TensorRT out."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would wait for the build to end, which takes minutes
    report = Reporter()
    order = json.loads(sys.stdin.read())

    def advance(share: float) -> None:
        report(share)

    try:
        if order:
            fill(Path(order["bundle"]), Path(order["cache"]), advance)
        else:
            try_out()
    except (DragomanError, OSError) as error:
        report.say({"error": str(error)})
        return 1
    report.say({"done": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
