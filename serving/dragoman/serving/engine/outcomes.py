"""How requests end: the errors that callers get, and what is counted."""

from __future__ import annotations

from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded, RequestError, ServerError

__all__ = ["as_request_error", "outcome_of"]


def as_request_error(error: Exception) -> RequestError:
    """`error` as callers may see it."""
    if isinstance(error, RequestError):
        return error
    ours = ServerError("the model could not be run")
    ours.__cause__ = error  # for the log: a library's message is not for callers
    return ours


def outcome_of(error: RequestError | None) -> str:
    """The name under which an end is counted."""
    return "ok" if error is None else _OUTCOMES.get(type(error), "failed")


_OUTCOMES: dict[type[RequestError], str] = {
    Cancelled: "cancelled",
    DeadlineExceeded: "deadline",
    InvalidRequest: "invalid",
    Overloaded: "overloaded",
}
