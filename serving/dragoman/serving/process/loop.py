"""The engine process's one loop: read, take in, step, answer."""

from __future__ import annotations

import time

from dragoman.errors import ServeError
from dragoman.serving import metrics
from dragoman.serving.engine import SessionReply
from dragoman.serving.link.channel import Channel
from dragoman.serving.link.frames import Frame, Kind, json_frame
from dragoman.serving.process.connections import Connections
from dragoman.serving.process.desk import TranslationDesk
from dragoman.serving.process.opening import OpenBundle
from dragoman.serving.process.session_desk import SessionDesk
from dragoman.serving.process.vitals import Vitals

__all__ = ["EngineLoop"]

_INTAKE_BUDGET_S = 0.002
_IDLE_S = 0.25
_LINGER_S = 0.5  # after DRAIN, for requests that were on their way


class EngineLoop:
    """One thread does everything, so a step, an answer and a heartbeat can't happen behind each other's backs."""

    def __init__(self, bundle: OpenBundle, connections: Connections, key: str) -> None:
        self._engine, self._connections = bundle.engine, connections
        self._recorder = metrics.Recorder()
        self._desk = TranslationDesk(bundle, self._recorder, connections.send)
        self._sessions = SessionDesk(bundle, key, connections.send)
        self._vitals = Vitals(bundle.engine, self._recorder)
        self._watchers: set[Channel] = set()
        self._progress = 0
        self._drain_since_s: float | None = None
        self._orphaned = False

    def run(self) -> None:
        """Serve until drained, or until there is nobody left to serve for."""
        while not self._is_over():
            for channel, frame in self._connections.receive(self._patience_s()):
                self._handle(channel, frame)
            for channel in self._connections.take_lost():
                self._forget(channel)
            self._desk.take_in(_INTAKE_BUDGET_S)
            if self._engine.busy:
                for happened in self._engine.step():
                    if isinstance(happened, SessionReply):
                        self._sessions.reply(happened.call)
                    else:
                        self._desk.handle(happened)
            self._publish()
            self._connections.flush()

    def _patience_s(self) -> float:
        return 0.0 if self._desk.has_intake else self._engine.timeout_s(_IDLE_S)

    def _is_over(self) -> bool:
        if self._orphaned:
            return True
        if self._drain_since_s is None or time.monotonic() - self._drain_since_s < _LINGER_S:
            return False
        return self._desk.open_jobs == 0 and not self._sessions.in_use and not self._connections.has_backlog

    def _handle(self, channel: Channel, frame: Frame) -> None:
        match frame.kind:
            case Kind.TRANSLATE | Kind.STREAM:
                self._desk.take(channel, frame)
            case Kind.ENCODE:
                self._sessions.open(channel, frame)
            case Kind.DECODE:
                self._sessions.decode(channel, frame)
            case Kind.CANCEL:
                self._desk.cancel(channel, frame.request)
            case Kind.HELLO:
                if frame.parts[0] == metrics.PUBLISHED_BY:
                    self._watchers.add(channel)
            case Kind.PING:
                self._connections.send(channel, json_frame(Kind.PONG, self._pulse()))
            case Kind.DRAIN:
                self._drain_since_s = time.monotonic()
            case _:
                raise ServeError(f"an engine was sent {frame.kind.name}, which is not for engines")

    def _pulse(self) -> dict[str, float]:
        open_requests, longest_step_s = self._desk.open_jobs, self._engine.slowest_call_s
        if self._engine.is_stuck:  # the supervisor must see that nothing moves, whoever still comes in or has gone away
            open_requests = max(open_requests, 1)
        else:
            self._progress = self._engine.counters.quanta + self._desk.pieces_taken
        return {"progress": self._progress, "open_requests": open_requests, "longest_step_s": longest_step_s}

    def _forget(self, channel: Channel) -> None:
        self._watchers.discard(channel)
        self._desk.forget(channel)
        self._orphaned = self._orphaned or channel is self._connections.supervisor

    def _publish(self) -> None:
        changes = self._vitals.due_changes(self._desk.cache_bytes) if self._watchers else None
        if changes:
            for watcher in self._watchers:
                self._connections.send(watcher, metrics.changes_frame(changes))
