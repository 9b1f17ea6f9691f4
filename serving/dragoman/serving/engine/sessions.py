"""Client-driven decoding: the caller runs the search, the caches stay here.

A session holds the caches of some sources. Each step names the rows to decode; a source that is left out is done, and a
session that nobody steps for a while is forgotten.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest, Overloaded, SessionLost
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.runtime import Best, Runtime
from dragoman.serving.engine.session import Session
from dragoman.serving.engine.shapes import bucket

__all__ = ["Sessions"]


class Sessions:
    """All open sessions of an engine, by unguessable names; bounded in number, rows and idle time."""

    def __init__(self, runtime: Runtime, model: ModelFacts, limits: EngineLimits, clock: Callable[[], float]) -> None:
        self._runtime, self._model, self._limits, self._clock = runtime, model, limits, clock
        self._open: dict[str, Session] = {}
        self._self_cells, self._cross_cells = limits.session_cells(model)

    def __len__(self) -> int:
        return len(self._open)

    def open(self, sources: Sequence[Sequence[int]]) -> str:
        """Encode `sources` and keep them; the session's name."""
        model, longest = self._model, max(map(len, sources), default=0)
        for source in sources:
            if not 1 <= len(source) <= model.max_source_tokens:
                raise InvalidRequest(f"a source has {len(source)} tokens, the model takes 1 to {model.max_source_tokens}")
            if not 0 <= min(source) <= max(source) < model.source_vocabulary:
                raise InvalidRequest(f"a source token is outside the vocabulary of {model.source_vocabulary}")
        if not 1 <= len(sources) <= self._limits.max_session_rows:
            raise InvalidRequest(
                f"{len(sources)} sources in a session; this server takes 1 to {self._limits.max_session_rows}"
            )
        cells = len(sources) * bucket(longest) + sum(session.cross_cells for session in self._open.values())
        if len(self._open) >= self._limits.max_sessions or cells > self._cross_cells:
            raise Overloaded(f"{len(self._open)} client-driven sessions are open; no room for another", 1.0)
        name = secrets.token_urlsafe(24)
        self._open[name] = Session(self._runtime, model, sources)
        self._open[name].used_s = self._clock()
        return name

    def step(self, name: str, rows: npt.NDArray[np.integer], candidates: int) -> Best:  # type: ignore[type-arg]
        """Decode `rows` (rows, 3): source, parent (row of the previous step, -1 at the first), token."""
        session = self._get(name)
        if not 1 <= candidates <= self._model.choices:
            raise InvalidRequest(f"candidates={candidates} must be between 1 and {self._model.choices}")
        most = self._runtime.max_candidates
        if most is not None and candidates > most:
            raise InvalidRequest(f"candidates={candidates} is more than this model gives at a step ({most})")
        if not 1 <= len(rows) <= self._limits.max_session_rows:
            raise InvalidRequest(f"{len(rows)} rows in a step; this server takes 1 to {self._limits.max_session_rows}")
        others = sum(other.self_cells for other in self._open.values() if other is not session)
        if len(rows) * bucket(session.steps + 1) + others > self._self_cells:
            raise Overloaded("the caches of client-driven sessions are full", 1.0)
        best = session.step(rows, candidates)
        session.used_s = self._clock()
        return best

    def close(self, name: str) -> None:
        """Forget a session; it is no error when it is gone already."""
        self._open.pop(name, None)

    def expire(self, now: float) -> None:
        """Forget sessions that were not used for the idle time-out."""
        for name, session in list(self._open.items()):
            if now - session.used_s > self._limits.session_idle_timeout_s:
                del self._open[name]

    def _get(self, name: str) -> Session:
        session = self._open.get(name)
        if session is None:
            raise SessionLost("there is no such session: it was idle for too long, closed, or the server was restarted")
        return session
