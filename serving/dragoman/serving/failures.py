"""An error as it is sent to the caller: a code of the wire contract and a sentence, without internals."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
    SessionLost,
    SuspectRequest,
)
from dragoman.wire import ErrorCode

__all__ = ["Failure", "cause_of", "outcome_of"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What a caller gets when a request fails; `text` is spelt as `wire.ErrorCode` says."""

    code: ErrorCode
    text: str

    @classmethod
    def with_code(cls, code: ErrorCode, message: str) -> Failure:
        return cls(code, f"{code.value}: {message}")

    @classmethod
    def overloaded(cls, message: str, retry_after_s: float) -> Failure:
        hint_ms = max(1, round(retry_after_s * 1000))
        return cls(ErrorCode.OVERLOADED, f"{ErrorCode.OVERLOADED.value} retry_after_ms={hint_ms}: {message}")

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure for `error`; anything not meant for callers becomes INTERNAL without its text."""
        if isinstance(error, Overloaded):
            return cls.overloaded(str(error), error.retry_after_s)
        for kind, code in _CODES.items():
            if isinstance(error, kind):
                return cls.with_code(code, str(error))
        return cls.internal()

    @classmethod
    def internal(cls) -> Failure:
        return cls.with_code(ErrorCode.INTERNAL, "the server failed at this request; its log says why")


_CODES = {
    InvalidRequest: ErrorCode.INVALID_REQUEST,
    DeadlineExceeded: ErrorCode.DEADLINE_EXCEEDED,
    Cancelled: ErrorCode.CANCELLED,
    SessionLost: ErrorCode.SESSION_LOST,
    SuspectRequest: ErrorCode.SUSPECT,
}


def outcome_of(error: BaseException) -> str:
    """The outcome of a failed request in metrics and logs."""
    code = Failure.of(error).code
    return {ErrorCode.INVALID_REQUEST: "invalid", ErrorCode.DEADLINE_EXCEEDED: "deadline"}.get(code, code.value.lower())


def cause_of(error: BaseException) -> dict[str, str]:
    """What failed and where, for the log. Messages of other libraries may contain the user's text and are left out."""
    fields = {"error": type(error).__name__, "where": _where(error)}
    if isinstance(error, RequestError):
        fields["reason"] = str(error)
        if error.__cause__ is not None:  # the runtime sees tokens only
            fields["cause"] = f"{type(error.__cause__).__name__}: {error.__cause__}"
            fields["where"] = _where(error.__cause__)
    return fields


def _where(error: BaseException) -> str:
    """The innermost places of the traceback, the last one last."""
    places = traceback.extract_tb(error.__traceback__)[-4:]
    return " > ".join(f"{Path(place.filename).name}:{place.lineno} {place.name}" for place in places)
