"""The engine's output: events, and the errors in them."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.errors import RequestError, ServerError
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.session_call import SessionCall

__all__ = ["Event", "Finished", "Progress", "SessionReply", "as_request_error"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Target tokens of a streaming sequence that can't change any more, after those of earlier events."""

    sequence: Sequence
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The sequence has ended: it has its hypotheses, best first, or its error. Each sequence gets exactly one."""

    sequence: Sequence


@dataclass(frozen=True, slots=True)
class SessionReply:
    """A call of a client-driven session has ended: it has its result or its error."""

    call: SessionCall


Event = Progress | Finished | SessionReply


def as_request_error(error: Exception) -> RequestError:
    """`error` in the form that callers may see."""
    if isinstance(error, RequestError):
        return error
    ours = ServerError("the model could not be run")
    ours.__cause__ = error  # for the log: a library's message is not for callers
    return ours
