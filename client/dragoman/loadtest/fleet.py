"""The worker processes of a run, seen from their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from types import TracebackType

from dragoman.errors import DragomanError
from dragoman.loadtest.plan import Plan
from dragoman.loadtest.sender import OpenSender
from dragoman.loadtest.worker import work
from dragoman.loadtest.worker_messages import Done, Failed, Progress, Ready, Start, Stop

__all__ = ["Fleet"]

_READY_WITHIN_S = 60.0
_SOON_S = 0.1
_LEAVE_WITHIN_S = 5.0


class Fleet:
    """Starts the processes, gives the start to all at once, passes on what they report; leaves none behind."""

    def __init__(self, plan: Plan, open_sender: OpenSender) -> None:
        # Not forked: a gRPC channel does not survive a fork, and the parent may have one.
        context = multiprocessing.get_context("spawn")
        self._processes = []
        self._connections: list[Connection] = []
        self._busy: list[Connection] = []
        for worker in range(plan.workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work, args=(theirs, plan, worker, open_sender), daemon=True, name=f"load-{worker}"
            )
            self._processes.append((process, theirs))
            self._connections.append(ours)

    def __enter__(self) -> Fleet:
        try:
            with _ignoring_ctrl_c():
                for process, theirs in self._processes:
                    process.start()
                    theirs.close()  # or the parent would never see the end of it
            for connection in self._connections:
                self._expect_ready(connection)
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._end_all()

    def start(self) -> float:
        """Start every worker; returns the common moment of `time.monotonic`."""
        at = time.monotonic() + _SOON_S
        self._busy = list(self._connections)
        for connection in self._connections:
            connection.send(Start(at))
        return at

    def stop(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):  # it has finished already
                connection.send(Stop())

    def reports(self, within_s: float) -> list[Progress | Done]:
        """Messages of the workers, waiting at most `within_s` for the first."""
        messages = []
        for connection in wait(self._busy, timeout=within_s):
            message = _receive(connection)  # type: ignore[arg-type]
            if isinstance(message, Done):
                self._busy.remove(connection)  # type: ignore[arg-type]
            if isinstance(message, (Progress, Done)):
                messages.append(message)
        return messages

    @property
    def running(self) -> bool:
        return bool(self._busy)

    def _expect_ready(self, connection: Connection) -> None:
        if not connection.poll(_READY_WITHIN_S):
            raise DragomanError(f"a load worker was not ready within {_READY_WITHIN_S:g} s; is this machine overloaded?")
        message = _receive(connection)
        if not isinstance(message, Ready):
            raise DragomanError(f"a load worker sent {message!r} before it was ready")

    def _end_all(self) -> None:
        for connection in self._connections:
            connection.close()  # a worker whose parent has closed the connection ends by itself
        deadline = time.monotonic() + _LEAVE_WITHIN_S
        for process, _ in self._processes:
            if process.pid is None:
                continue
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            process.close()


@contextlib.contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Let children inherit that Ctrl-C is ignored, also while they are importing: only the parent handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _receive(connection: Connection) -> object:
    try:
        message = connection.recv()
    except (EOFError, OSError) as error:
        raise DragomanError("a load worker died; run with fewer in flight, or look above for its last words") from error
    if isinstance(message, Failed):
        raise message.error
    return message
