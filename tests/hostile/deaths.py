"""Counts how often the engines and Triton of a server were replaced."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import TracebackType

import grpc

from served import Caller, Server, eventually

EVERY_S = 0.1
"""Starting takes longer than this, so that no generation of a process goes unseen."""


class Deaths:
    """Watches the processes of `server`, by their pids: what it says does not depend on the server's own counters."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._alive: dict[int, str] = {}
        self._counted: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Deaths:
        self._list()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)

    def counted(self) -> Counter[str]:
        """Deaths so far: `engine` and `triton`."""
        return Counter(self._counted)

    def whole(self, timeout_s: float = 60.0) -> None:
        """Wait until the server has an engine and a Triton, and answers."""
        caller = self._server.caller()
        try:
            eventually(lambda: _answers(caller), timeout_s)
            eventually(lambda: set(self._alive.values()) == {"engine", "triton"}, timeout_s)
        finally:
            caller.close()

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            for pid in [pid for pid in self._alive if not _is_alive(pid)]:
                self._counted[self._alive.pop(pid)] += 1
            if set(self._alive.values()) != {"engine", "triton"}:
                self._list()

    def _list(self) -> None:
        if self._server.process.poll() is not None:
            return
        for kind, pids in self._server.children().items():
            self._alive.update((pid, kind) for pid in pids if kind in ("engine", "triton"))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2][:1]
    except OSError:
        return False
    return state not in ("Z", "X")


def _answers(caller: Caller) -> bool:
    try:
        return bool(caller.translate(["Are you there?"], timeout_s=5, cache=False).best)
    except grpc.RpcError:
        return False
