"""Client-driven decoding: the caller runs the search, the caches stay in the engine.

A session holds the caches of some sources. Each step names the rows to decode; a source that is left out is done, and a
session that is not stepped for a while is dropped.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable

from dragoman.errors import InvalidRequest, Overloaded, RequestError, ServerError, SessionLost
from dragoman.serving.engine.admission import check_source
from dragoman.serving.engine.events import as_request_error
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.engine.session import Session, Slices
from dragoman.serving.engine.session_call import OpenSession, SessionCall, StepSession
from dragoman.serving.engine.worker_pool import Longest

__all__ = ["Sessions"]

_MOST_CALLS = 256
"""Calls that may be open at a time; their steps may have as many candidates together as one may: answers take memory."""


class Sessions:
    """All open sessions of an engine, by unguessable names; bounded in number, slots and idle time.

    Calls take turns slice by slice: a slice is the unit of work of a quantum, and never longer than one model call.
    """

    def __init__(self, runtime: Runtime, model: ModelFacts, limits: EngineLimits, clock: Callable[[], float]) -> None:
        self._runtime, self._model, self._limits, self._clock = runtime, model, limits, clock
        self._open: dict[str, Session] = {}
        self._slots = limits.session_slots(model)
        self._calls: deque[tuple[SessionCall, Slices]] = deque()
        self._busy: set[str] = set()  # sessions whose step runs
        self._done: list[SessionCall] = []
        self.at_work = False
        self.began_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    # Between quanta.

    @property
    def has_work(self) -> bool:
        return bool(self._calls)

    def submit(self, call: SessionCall) -> None:
        """Begin a call; it always ends with a SessionReply."""
        if len(self._calls) >= _MOST_CALLS:
            raise Overloaded(f"{_MOST_CALLS} calls of client-driven sessions are open", 0.1)
        self._check_candidates(call)
        self._calls.append((call, self._work(call)))

    def _check_candidates(self, call: SessionCall) -> None:
        most, asked = self._limits.max_step_candidates, call.candidate_count
        if asked > most:
            raise InvalidRequest(
                f"{asked} candidates of all rows together; a step gives {most}: ask for fewer, or of fewer rows"
            )
        if asked + sum(other.candidate_count for other, _ in list(self._calls)) > most:
            raise Overloaded("other steps of client-driven sessions have asked for very many candidates", 0.1)

    def close(self, name: str) -> None:
        """Forget a session; it is no error when it is gone already."""
        self._open.pop(name, None)

    def expire(self, now: float) -> None:
        """Forget sessions that were not used for the idle time-out."""
        for name, session in list(self._open.items()):
            if now - session.used_s > self._limits.session_idle_timeout_s and name not in self._busy:
                self._open.pop(name, None)

    def end_quantum(self) -> list[SessionCall]:
        """The calls that have ended."""
        self.at_work = False
        done, self._done = self._done, []
        return done

    # The quantum.

    def steps_within(self, time_s: float) -> int:  # noqa: ARG002 - a slice is as short as work can be
        return 1

    def run_quantum(self, max_steps: int, longest: Longest, clock: Callable[[], float]) -> None:
        """One slice of each call in turn, until the time is up."""
        began_s = clock()
        with self._runtime.computing:
            for _ in range(max_steps):
                if not self._calls:
                    return
                call, slices = self._calls.popleft()
                if self._advance(call, slices):
                    self._done.append(call)
                else:
                    self._calls.append((call, slices))
                if clock() - began_s >= longest():
                    return

    @staticmethod
    def _advance(call: SessionCall, slices: Slices) -> bool:
        """Do one slice; True when the call has ended."""
        try:
            next(slices)
        except StopIteration:
            return True
        except Exception as error:  # any error of a library becomes the result
            call.error = as_request_error(error)
            return True
        return False

    def _work(self, call: SessionCall) -> Slices:
        if isinstance(call, OpenSession):
            yield from self._opening(call)
        elif isinstance(call, StepSession):
            yield from self._stepping(call)
        else:
            raise ServerError(f"{type(call).__name__} is no call of a session")

    def _opening(self, call: OpenSession) -> Slices:
        sources, most = call.sources, self._limits.max_session_rows
        if not 1 <= len(sources) <= most:
            raise InvalidRequest(f"{len(sources)} sources in a session; this server takes 1 to {most}")
        for source in sources:
            check_source(source, self._model)
        tokens = sum(map(len, sources)) + sum(session.cross_slots for session in list(self._open.values()))
        if len(self._open) >= self._limits.max_sessions or tokens > self._slots.cross:
            raise Overloaded(f"{len(self._open)} client-driven sessions are open; no room for another", 1.0)
        name = secrets.token_urlsafe(24)
        session = self._open[name] = Session(self._runtime, self._model, sources, call.shortlists)
        session.used_s = self._clock()
        try:
            yield from session.encode()
        except BaseException:
            self._open.pop(name, None)
            raise
        session.used_s = self._clock()
        call.name = name

    def _stepping(self, call: StepSession) -> Slices:
        session = self._checked(call)
        self._busy.add(call.name)
        try:
            yield from session.step(call.rows, call.candidates)
        except RequestError:
            raise  # the caller's mistake: the session is unchanged
        except BaseException:
            self._open.pop(call.name, None)  # its caches can't be trusted
            raise
        finally:
            self._busy.discard(call.name)
            session.used_s = self._clock()
        call.top = session.top

    def _checked(self, call: StepSession) -> Session:
        model, limits, most = self._model, self._limits, self._runtime.max_candidates
        session = self._open.get(call.name)
        if session is None:
            raise SessionLost("there is no such session: it was idle for too long, closed, or the server was restarted")
        if call.name in self._busy:
            raise InvalidRequest("a step of this session is running; send one after the other")
        if not 1 <= call.candidates <= model.choices:
            raise InvalidRequest(f"candidates={call.candidates} must be between 1 and {model.choices}")
        if most is not None and call.candidates > most:
            raise InvalidRequest(f"candidates={call.candidates} is more than this model gives at a step ({most})")
        if not 1 <= len(call.rows) <= limits.max_session_rows:
            raise InvalidRequest(f"{len(call.rows)} rows in a step; this server takes 1 to {limits.max_session_rows}")
        others = sum(other.slots.own for other in list(self._open.values()) if other is not session)
        if len(call.rows) * (session.steps + 1) + others > self._slots.own:
            raise Overloaded("the caches of client-driven sessions are full", 1.0)
        return session
