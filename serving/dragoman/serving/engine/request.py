"""What goes into the engine and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dragoman.errors import RequestError
from dragoman.search import DecodingOptions, Hypothesis

__all__ = ["Event", "Finished", "Priority", "Progress", "Request", "Started", "Timings"]

Priority = Literal["interactive", "batch"]


@dataclass(frozen=True, slots=True)
class Request:
    """One source to translate. `id` is the caller's and must not be in use.

    `deadline_s` and `arrived_s` are on the engine's clock; whoever waited before `submit` says since when.
    """

    id: str
    source: tuple[int, ...]
    options: DecodingOptions = field(default_factory=DecodingOptions)
    priority: Priority = "interactive"
    deadline_s: float | None = None
    stream: bool = False
    arrived_s: float | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """How long one request took, counted from its arrival, which is `submit` unless the request says otherwise."""

    queue_s: float
    first_token_s: float | None
    total_s: float
    steps: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The one final answer of a request: hypotheses, best first, or an error."""

    request: Request
    timings: Timings
    hypotheses: tuple[Hypothesis, ...] = ()
    error: RequestError | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A request has left the queue: it runs, and would be lost with this engine."""

    request: Request


@dataclass(frozen=True, slots=True)
class Progress:
    """Target tokens of a streaming request that have just been decided, after those of earlier events."""

    request: Request
    tokens: tuple[int, ...]


Event = Started | Progress | Finished
