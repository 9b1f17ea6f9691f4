"""`python -m dragoman.serving.process CONTROL_FD SOCKET`: one engine process, started by the supervisor."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from pathlib import Path

from dragoman.errors import DragomanError, ServeError
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, FrameReader, Kind, json_frame
from dragoman.serving.logs import configure_logging
from dragoman.serving.process.settings import ProcessSettings

_log = logging.getLogger(__name__)


def main(control: socket.socket, listens_at: Path) -> int:
    """Load the bundle, report that it is ready or why it is not, and serve."""
    settings = ProcessSettings.from_json(_first_frame(control).json())
    configure_logging(settings.log_level, f"engine {settings.name}")
    supervisor = Channel(control)
    try:
        from dragoman.serving.process.connections import Connections
        from dragoman.serving.process.loaded_bundle import load_bundle
        from dragoman.serving.process.loop import EngineLoop, GarbageCollector

        bundle = load_bundle(settings, listens_at.parent)
        connections = Connections(supervisor, listens_at, bundle.engine.wakeup_fd)
    except DragomanError as error:
        if error.__cause__ is not None:  # a library's message is for the log, not for the operator's one line
            _log.exception("the bundle could not be opened")
        supervisor.send(Frame(Kind.FAILED, 0, (type(error).__name__.encode(), str(error).encode())))
        return 1
    supervisor.send(json_frame(Kind.READY, bundle.introduction()))
    try:
        EngineLoop(bundle, connections, key=listens_at.stem, garbage=GarbageCollector()).run()
    except Exception:
        _log.critical("engine crashed", exc_info=True)
        return 1
    finally:
        connections.close()
    return 0


def _first_frame(control: socket.socket) -> Frame:
    reader = FrameReader()
    while data := control.recv(1 << 16):
        for frame in reader.feed(data):
            return frame
    raise ServeError("the supervisor ended before it sent the settings")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides when to stop
    sys.exit(main(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])))
