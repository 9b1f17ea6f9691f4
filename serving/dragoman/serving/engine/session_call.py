"""A call of a client-driven session: its request and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from dragoman.errors import RequestError
from dragoman.serving.engine.runtime import TopTokens

__all__ = ["OpenSession", "SessionCall", "StepSession"]


class SessionCall:
    """Passed to `Sessions.submit`; returned in a SessionReply. `owner` belongs to the caller."""

    __slots__ = ("error", "owner")

    def __init__(self, owner: object = None) -> None:
        self.owner = owner
        self.error: RequestError | None = None

    @property
    def candidate_count(self) -> int:
        """How many candidates its result has, of all rows together."""
        return 0


class OpenSession(SessionCall):
    """Encode `sources` and keep them, each with the number of its shortlist; `name` is the new session's."""

    __slots__ = ("name", "shortlists", "sources")

    def __init__(
        self, sources: Sequence[Sequence[int]], owner: object = None, shortlists: Sequence[int] | None = None
    ) -> None:
        super().__init__(owner)
        self.sources, self.shortlists = sources, shortlists or [0] * len(sources)
        self.name = ""


class StepSession(SessionCall):
    """Decode `rows` (rows, 3): source, parent (row of the previous step, -1 at the first), token."""

    __slots__ = ("candidates", "name", "rows", "top")

    def __init__(self, name: str, rows: npt.NDArray[Any], candidates: int, owner: object = None) -> None:
        super().__init__(owner)
        self.name, self.rows, self.candidates = name, rows, candidates
        self.top: TopTokens | None = None

    @property
    def candidate_count(self) -> int:
        return len(self.rows) * self.candidates
