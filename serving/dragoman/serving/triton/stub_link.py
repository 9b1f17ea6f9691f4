"""The stub's end of the link: sends requests to engines, gives each exactly one last answer, whatever happens to them.

One thread reads everything and is the only one that touches a reply after it was handed in. That is more than tidy:
asking Triton whether a request was cancelled after its final answer was sent brings the whole server down.
"""

from __future__ import annotations

import itertools
import os
import selectors
import struct
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dragoman.errors import InvalidRequest, ServeError
from dragoman.serving.failures import Failure
from dragoman.serving.link.channel import Channel, ChannelClosed
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.triton.routes import Engine, Routes, RoutingTable
from dragoman.wire import ErrorCode

__all__ = ["SUPERVISOR_VARIABLE", "Reply", "StubLink"]

SUPERVISOR_VARIABLE = "DRAGOMAN_SUPERVISOR"
"""The environment variable that tells a stub where its supervisor listens."""

_NO_SESSION = "there is no such session: it was closed, was idle too long, or was lost with its engine; start again"
_INTERRUPTED = "the engine was restarted while it worked on this; send it again"

MAX_PENDING = 4096
MAX_REQUEST_BYTES = 64 << 20
_TICK_S, _IDLE_TICK_S = 0.02, 0.05
_CANCEL_CHECKS_A_TICK = 4  # each costs a message to the server: ~50 µs


class Reply(Protocol):
    """Where the answer to one request goes; called from the link's thread only."""

    def deliver(self, frame: Frame) -> None:
        """An ANSWER, or a CHUNK with more to come."""

    def fail(self, failure: Failure) -> None:
        """The last word on a request that went wrong."""

    def is_cancelled(self) -> bool:
        """Has the caller gone away?"""


@dataclass(eq=False, slots=True)
class _Pending:
    frame: Frame
    reply: Reply
    bundle: str
    engine: Engine | None
    since_s: float
    asked_s: float
    started: bool = False
    held_before: bool = False
    cancelled: bool = False


class StubLink:
    """Requests in, replies out, over a supervisor's socket and as many engines as it names."""

    def __init__(
        self,
        supervisor: str,
        name: str,
        on_metrics: Callable[[str, str, Frame], None] | None = None,
        on_table: Callable[[RoutingTable], None] | None = None,
    ) -> None:
        self._name, self._on_metrics, self._on_table = name, on_metrics, on_table
        self._routes = Routes()
        self._pending: dict[int, _Pending] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # guards routes and pending; never held while a reply is called
        self._routed = threading.Event()
        self._closing = False
        self.tables = 0  # routing tables that it was told
        self._selector = selectors.DefaultSelector()
        self._supervisor = Channel.connect(supervisor)
        self._supervisor.send(Frame(Kind.HELLO, 0, (name.encode(), str(os.getpid()).encode())))
        self._selector.register(self._supervisor, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._thread.start()

    def wait_until_routed(self, timeout_s: float) -> None:
        """Return when every bundle has an engine that has translated something."""
        if not self._routed.wait(timeout_s):
            raise ServeError(f"no engine was ready within {timeout_s:.0f} s")

    def submit(self, kind: Kind, parts: tuple[bytes, ...], reply: Reply) -> None:
        """Send a request that starts with its options (DECODE: with its session); `reply` hears of it exactly once."""
        now_s = time.monotonic()
        frame = Frame(kind, next(self._numbers), (struct.pack("<d", now_s), *parts))
        with self._lock:
            refused = self._place(frame, reply, now_s)
        if refused:
            reply.fail(refused)

    def close(self) -> None:
        """Stop reading; requests without an answer are refused."""
        self._closing = True
        self._thread.join(timeout=5)
        with self._lock:
            left, self._pending = list(self._pending.values()), {}
            for engine in self._routes.all():
                self._routes.forget(engine)
        self._supervisor.close()
        self._selector.close()
        for pending in left:
            pending.reply.fail(Failure.say(ErrorCode.DRAINING, "this server is going away"))

    def _place(self, frame: Frame, reply: Reply, now_s: float) -> Failure | None:
        """Register and send under the lock, or say why not."""
        going_on = frame.kind is Kind.DECODE  # a session that is open was admitted
        if self._closing or (self._routes.table.draining and not going_on):
            return Failure.say(ErrorCode.DRAINING, "this server is going away; another may answer")
        if (size := sum(map(len, frame.parts))) > MAX_REQUEST_BYTES:
            message = f"the request has {size} bytes; a server takes {MAX_REQUEST_BYTES}: send several"
            return Failure.say(ErrorCode.INVALID_REQUEST, message)
        if len(self._pending) >= MAX_PENDING:
            return Failure.overloaded(f"too many requests are open ({MAX_PENDING})", retry_after_s=1.0)
        if frame.kind is Kind.DECODE:
            engine = self._routes.engine_of_session(frame.parts[1])
            if engine is None:
                return Failure.say(ErrorCode.SESSION_LOST, _NO_SESSION)
            bundle = engine.bundle
        else:
            try:
                bundle = self._routes.bundle_for(frame.parts[1])
            except InvalidRequest as error:
                return Failure.of(error)
            engine = self._routes.engine(bundle)
        pending = _Pending(frame, reply, bundle, None, now_s, now_s)
        self._pending[frame.request] = pending
        if engine is not None:
            self._give(pending, engine)
        return None

    def _give(self, pending: _Pending, engine: Engine) -> None:
        pending.engine = engine
        engine.open += 1
        self._send(engine, pending.frame)

    def _end(self, number: int) -> _Pending | None:
        """Take a request off the books."""
        pending = self._pending.pop(number, None)
        if pending is not None and pending.engine is not None:
            pending.engine.open -= 1
        return pending

    def _send(self, engine: Engine, frame: Frame) -> None:
        try:
            engine.channel.send(frame)
        except ChannelClosed:
            return  # the reading thread sees the same and deals with everything that was sent there

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException:
            # A stub that no longer answers looks healthy to Triton; one that is gone is noticed and replaced at once.
            traceback.print_exc()
            os._exit(1)

    def _serve(self) -> None:
        tick_s = time.monotonic()
        while not self._closing:
            for key, events in self._selector.select(_TICK_S if self._pending else _IDLE_TICK_S):
                if key.data is None:
                    self._read_supervisor()
                else:
                    self._serve_engine(key.data, events)
            self._watch_backlogs()
            if (now_s := time.monotonic()) >= tick_s:
                tick_s = now_s + _TICK_S
                self._expire_held(now_s)
                self._look_for_cancelled(now_s)

    def _watch_backlogs(self) -> None:
        for engine in self._routes.all():
            if engine.writing != engine.channel.has_backlog:
                engine.writing = not engine.writing
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if engine.writing else 0)
                self._selector.modify(engine.channel, wanted, engine)

    def _read_supervisor(self) -> None:
        try:
            frames = self._supervisor.receive()
        except ChannelClosed:
            self._selector.unregister(self._supervisor)  # it died; the server was started to end with it
            return
        for frame in frames:
            if frame.kind is Kind.ROUTES:
                self._take_table(RoutingTable.from_frame(frame))

    def _take_table(self, table: RoutingTable) -> None:
        with self._lock:
            for engine in self._routes.update(table):
                self._selector.register(engine.channel, selectors.EVENT_READ, engine)
                self._send(engine, Frame(Kind.HELLO, 0, (self._name.encode(),)))
                for pending in self._pending.values():
                    if pending.engine is None and pending.bundle == engine.bundle:
                        self._give(pending, engine)
            self.tables += 1
        if self._on_table:
            self._on_table(table)
        if all(table.sockets.get(bundle) for bundle in table.bundles):
            self._routed.set()

    def _serve_engine(self, engine: Engine, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                engine.channel.flush()
            frames = engine.channel.receive() if events & selectors.EVENT_READ else []
        except ServeError:
            self._lose(engine)
            return
        for frame in frames:
            self._take(engine, frame)

    def _take(self, engine: Engine, frame: Frame) -> None:
        if frame.kind is Kind.STARTED:
            with self._lock:
                for (number,) in struct.iter_unpack("<Q", frame.parts[0]):
                    if number in self._pending:
                        self._pending[number].started = True
        elif frame.kind is Kind.METRICS:
            if self._on_metrics:
                self._on_metrics(engine.bundle, engine.socket, frame)
        else:
            with self._lock:
                last = frame.kind is not Kind.CHUNK
                pending = self._end(frame.request) if last else self._pending.get(frame.request)
            if pending is None:
                return
            pending.started = True  # a caller who has heard a part must not hear it again from another engine
            if frame.kind is Kind.ERROR:
                pending.reply.fail(Failure(ErrorCode(frame.parts[0].decode()), frame.parts[1].decode()))
            else:
                pending.reply.deliver(frame)

    def _lose(self, engine: Engine) -> None:
        """The engine died: what it had begun is refused at once, what only waited there is kept for the next one."""
        self._selector.unregister(engine.channel)
        with self._lock:
            self._routes.forget(engine)
            kept, lost = [], []
            for number, pending in list(self._pending.items()):
                if pending.engine is not engine:
                    continue
                if pending.started or pending.held_before or pending.cancelled or pending.frame.kind is Kind.DECODE:
                    lost.append(self._pending.pop(number))
                else:
                    pending.held_before = True
                    kept.append(pending)
            for pending in kept:
                successor = pending.engine = self._routes.engine(engine.bundle)
                if successor is not None:
                    self._give(pending, successor)
        for pending in lost:
            if pending.frame.kind is Kind.DECODE:
                pending.reply.fail(Failure.say(ErrorCode.SESSION_LOST, _NO_SESSION))
            else:
                pending.reply.fail(Failure.say(ErrorCode.RESTARTING, _INTERRUPTED))

    def _expire_held(self, now_s: float) -> None:
        with self._lock:
            hold_s = self._routes.table.hold_s
            late = [n for n, held in self._pending.items() if held.engine is None and now_s - held.since_s > hold_s]
            expired = [self._pending.pop(number) for number in late]
        for pending in expired:
            pending.reply.fail(Failure.say(ErrorCode.RESTARTING, f"the engine died and was not back within {hold_s:.0f} s"))

    def _look_for_cancelled(self, now_s: float) -> None:
        """Ask after the requests that were asked after longest ago; a few at a time, for asking is not free."""
        with self._lock:
            due = [item for item in self._pending.items() if not item[1].cancelled and now_s - item[1].asked_s >= _TICK_S]
        due.sort(key=lambda item: item[1].asked_s)
        for number, pending in due[:_CANCEL_CHECKS_A_TICK]:
            pending.asked_s = now_s
            if not pending.reply.is_cancelled():
                continue
            pending.cancelled = True
            with self._lock:
                engine = pending.engine
                if engine is not None:
                    self._send(engine, Frame(Kind.CANCEL, number))
                else:
                    self._pending.pop(number, None)
            if engine is None:
                pending.reply.fail(Failure.say(ErrorCode.CANCELLED, "the caller went away"))
