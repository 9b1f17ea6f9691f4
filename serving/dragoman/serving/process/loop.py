"""The loop of the engine process: receive, do a slice of the waiting work, step the engine, send answers."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable

from dragoman.errors import ServeError
from dragoman.serving import metrics
from dragoman.serving.engine import Event, SessionReply
from dragoman.serving.failures import Failure, cause_of
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind, json_frame
from dragoman.serving.logs import event as log_event
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.connections import Connections
from dragoman.serving.process.job_queue import JobQueue
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.metrics_sampler import MetricsSampler
from dragoman.serving.process.queue_room import QueueRoom, read_refused
from dragoman.serving.process.request_handler import RequestHandler
from dragoman.serving.process.session_handler import SessionHandler

__all__ = ["EngineLoop", "GarbageCollector"]

_log = logging.getLogger(__name__)
_JOB_BUDGET_S = 0.002
_OFTEN_S = 0.001
"""Python lets a waiting thread continue after 5 ms. While jobs keep this thread busy, the threads that call the model would
wait so long several times for each token. At other times, switching often only costs time."""
_IDLE_S = 0.25
_LINGER_S = 0.5  # after DRAIN, for requests that were on their way
_COLLECT_AT_REST_S = 10.0
_COLLECT_S = 600.0
_QUEUED = frozenset((Kind.TRANSLATE, Kind.STREAM, Kind.SCORE))
_REQUESTS = _QUEUED | {Kind.ENCODE, Kind.DECODE}


class EngineLoop:
    """One thread does everything except the model's calls, so steps, answers and heartbeats never race.

    An error in one frame or event ends that request or that connection, never the loop.
    """

    def __init__(
        self, bundle: LoadedBundle, connections: Connections, key: str, garbage: GarbageCollector | None = None
    ) -> None:
        self._engine, self._connections, self._garbage = bundle.engine, connections, garbage
        self._recorder = metrics.Recorder()
        self._jobs = JobQueue()
        self._replies = Replies(connections.send)
        self._requests = RequestHandler(bundle, self._recorder, self._replies, self._jobs)
        self._sessions = SessionHandler(bundle, key, self._replies, self._jobs)
        self._sampler = MetricsSampler(bundle.engine, self._recorder)
        self._room = QueueRoom(bundle.engine.limits.max_queue_requests, connections.send)
        self._watchers: set[Channel] = set()
        self._progress = 0
        self._drain_since_s: float | None = None
        self._orphaned = False
        self._usual_switch_s, self._switches_often = sys.getswitchinterval(), False

    def run(self) -> None:
        """Serve until drained, or until the supervisor has ended."""
        while not self._is_over():
            for channel, frame in self._connections.receive(self._timeout_s()):
                self._receive(channel, frame)
            self._connections.flush()  # refusals do not wait for a step
            for channel in self._connections.take_lost():
                self._forget(channel)
            self._jobs.run(_JOB_BUDGET_S)
            self._switch_often(len(self._jobs) > 0)
            if self._engine.busy:
                events = self._engine.step()
                if self._engine.is_lost:
                    log_event(_log, logging.ERROR, "device lost", {"way_out": "the supervisor starts another process"})
                    return  # without an answer: the Triton backend gives the requests to another engine
                for event in events:
                    self._handle_event(event)
            self._requests.resume_parked()
            self._room.publish(*self._requests.queue_room())
            self._publish()
            self._connections.flush()
            if self._garbage is not None:
                self._garbage.run(at_rest=self._is_at_rest)

    def _switch_often(self, often: bool) -> None:
        if often != self._switches_often:
            self._switches_often = often
            sys.setswitchinterval(_OFTEN_S if often else self._usual_switch_s)

    def _timeout_s(self) -> float:
        return 0.0 if len(self._jobs) else self._engine.timeout_s(_IDLE_S)

    def _is_over(self) -> bool:
        if self._orphaned:
            return True
        if self._drain_since_s is None or time.monotonic() - self._drain_since_s < _LINGER_S:
            return False
        return self._is_at_rest and not self._sessions.in_use and not self._connections.has_backlog

    @property
    def _is_at_rest(self) -> bool:
        return self._requests.open_requests == 0 and len(self._jobs) == 0 and not self._engine.busy

    def _receive(self, channel: Channel, frame: Frame) -> None:
        try:
            self._dispatch(channel, frame)
        except ServeError as error:
            log_event(_log, logging.ERROR, "connection closed", {"reason": str(error)})
            self._connections.drop(channel)
        except Exception as error:
            log_event(_log, logging.ERROR, "frame failed", {"kind": frame.kind.name, **cause_of(error)})
            if frame.kind in _REQUESTS:
                failure = Failure.internal()
                answer = (failure.code.value.encode(), failure.text.encode())
                self._connections.send(channel, Frame(Kind.ERROR, frame.request, answer))

    def _dispatch(self, channel: Channel, frame: Frame) -> None:
        match frame.kind:
            case Kind.TRANSLATE | Kind.STREAM | Kind.SCORE:
                self._room.count(channel)
                self._requests.translate(channel, frame)
            case Kind.ENCODE:
                self._sessions.encode(channel, frame)
            case Kind.DECODE:
                self._sessions.decode(channel, frame)
            case Kind.CANCEL:
                self._requests.cancel(channel, frame.request)
            case Kind.HELLO:
                if frame.parts[:1] == (metrics.PUBLISHED_BY,):
                    self._watchers.add(channel)
                    self._room.add(channel)
            case Kind.REFUSED:
                self._requests.count_refused(read_refused(frame))
            case Kind.PING:
                self._connections.send(channel, json_frame(Kind.PONG, self._pulse()))
            case Kind.DRAIN:
                self._drain_since_s = time.monotonic()
            case _:
                raise ServeError(f"an engine was sent {frame.kind.name}, which is not for engines")

    def _handle_event(self, event: Event) -> None:
        try:
            if isinstance(event, SessionReply):
                self._sessions.handle(event)
            else:
                self._requests.handle(event)
        except Exception as error:
            log_event(_log, logging.ERROR, "event failed", {"event": type(event).__name__, **cause_of(error)})

    def _pulse(self) -> dict[str, float]:
        open_requests, longest_step_s = self._requests.open_requests, round(self._engine.slowest_call_s, 4)
        if self._engine.is_stuck:  # the supervisor must see that there is no progress, whatever else arrives
            open_requests = max(open_requests, 1)
        else:
            self._progress = self._engine.counters.steps + self._jobs.steps_done
        return {"progress": self._progress, "open_requests": open_requests, "longest_step_s": longest_step_s}

    def _forget(self, channel: Channel) -> None:
        self._watchers.discard(channel)
        self._room.remove(channel)
        self._requests.forget(channel)
        self._orphaned = self._orphaned or channel is self._connections.supervisor

    def _publish(self) -> None:
        changes = self._sampler.due_changes(self._requests.cache_bytes) if self._watchers else None
        if changes:
            for watcher in self._watchers:
                self._connections.send(watcher, metrics.changes_frame(changes))


class GarbageCollector:
    """Decides when the collector of reference cycles runs; objects that exist when this is created are never collected.

    A collection visits every live object: with forty pages of 100 kB that took 0.27 s, during which no token was decoded.
    Requests leave no cycles behind, so automatic collection is off; it runs only as a safeguard.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._clock = clock
        self._last_s = clock()

    def run(self, *, at_rest: bool) -> None:
        """Collect if it is due: soon when there is nothing else to do, and rarely in any case."""
        now_s = self._clock()
        if now_s - self._last_s >= (_COLLECT_AT_REST_S if at_rest else _COLLECT_S):
            self._last_s = now_s
            gc.collect()
