"""A connection that can be cut so that neither end hears of it, as when a machine loses its power."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

_LOOK_EVERY_S = 0.02


class Cable:
    """Passes on what comes in either direction until it is cut; then it keeps both ends open and says nothing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cut = threading.Event()
        self._unplugged = threading.Event()

    def cut(self) -> None:
        """From now on nothing comes through."""
        self._cut.set()

    @contextlib.contextmanager
    def plugged(self) -> Iterator[str]:
        """The address to dial."""
        with contextlib.ExitStack() as ends:
            listening = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
            listening.settimeout(_LOOK_EVERY_S)
            accepting = threading.Thread(target=self._accept, args=(listening, ends))
            accepting.start()
            try:
                yield f"127.0.0.1:{listening.getsockname()[1]}"
            finally:
                self._unplugged.set()
                accepting.join()

    def _accept(self, listening: socket.socket, ends: contextlib.ExitStack) -> None:
        carrying = []
        while not self._unplugged.is_set():
            with contextlib.suppress(TimeoutError):
                near = ends.enter_context(listening.accept()[0])
                far = ends.enter_context(socket.create_connection(("127.0.0.1", self._port)))
                for source, sink in ((near, far), (far, near)):
                    source.settimeout(_LOOK_EVERY_S)
                    carrying.append(threading.Thread(target=self._carry, args=(source, sink)))
                    carrying[-1].start()
        for one in carrying:
            one.join()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            while not self._unplugged.is_set():
                with contextlib.suppress(TimeoutError):
                    content = source.recv(65536)
                    if not content:
                        return
                    if not self._cut.is_set():
                        sink.sendall(content)
