"""What went wrong, from a gRPC status: an error of our tree, and whether another try makes sense.

This is the only module that turns statuses into errors, so that no gRPC type ever reaches a caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

import grpc

from dragoman.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
    ServerError,
    SessionLost,
    SuspectRequest,
    TransportError,
)
from dragoman.wire import WIRE_VERSION, ErrorCode

__all__ = ["Failure", "Retry", "hung", "read_error", "read_message", "read_status"]

_CODED = re.compile(r"\s*(?P<code>[A-Z_]+)(?: retry_after_ms=(?P<hint>\d+))?: (?P<text>.*)", re.DOTALL)
_USUAL_HINT_S = 0.5
_BROKEN_CONNECTION = ("Stream removed", "Connection reset", "Socket closed", "RST_STREAM", "GOAWAY")


class Retry(Enum):
    """Whether the same request may be sent again."""

    NEVER = auto()
    """It would fail again."""
    LATER = auto()
    """The server answered that it has no room: a retry is load, so it costs the budget."""
    WAIT = auto()
    """The server is down, or on its way: waiting for it is no load, so only the call's deadline ends it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed. `server_down`: leave this server out for a while, another one may answer."""

    error: RequestError
    retry: Retry = Retry.NEVER
    server_down: bool = False


def read_status(code: grpc.StatusCode, details: str | None, address: str) -> Failure:
    """The failure that a call to `address` ended with."""
    message = details or ""
    coded = read_message(message)
    if coded is not None:
        return coded
    if _is_starting_or_stopping(message):
        return _down(_no_dragoman(address, f"{message}; it may be starting or stopping"))
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return _unreachable(message, address)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Failure(DeadlineExceeded(f"{address} did not answer in time; raise timeout_s or send less"))
        case grpc.StatusCode.CANCELLED:  # not by this client: how a Triton that is stopping ends its calls
            return _down(TransportError(f"{address} cancelled the call without a reason: it is stopping"))
        case grpc.StatusCode.UNIMPLEMENTED:
            return Failure(_no_dragoman(address, "it is no Triton server"))
        case grpc.StatusCode.INVALID_ARGUMENT:
            return Failure(
                InvalidRequest(
                    f"{address} refused the request: {message} (this client speaks wire version {WIRE_VERSION}; "
                    "use a server of the same dragoman release)"
                )
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Failure(TransportError(f"{address} does not admit this client: {message}"))
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Failure(InvalidRequest(f"the message is too large for {address}: {message}; send fewer texts at once"))
    if any(sign in message for sign in _BROKEN_CONNECTION):
        return _down(TransportError(_connection_problem(message, address)))
    return Failure(ServerError(f"{address} failed: {message or code.name.lower()}"))


def read_message(message: str) -> Failure | None:
    """The failure that a message with a wire error code names; None when it has none."""
    matched = _CODED.match(message)
    if matched is None or matched["code"] not in ErrorCode.__members__:
        return None
    retry_after_ms = int(matched["hint"]) if matched["hint"] else None
    return read_error(ErrorCode[matched["code"]], matched["text"].strip(), retry_after_ms)


def read_error(code: ErrorCode, text: str, retry_after_ms: float | None = None) -> Failure:
    """The failure that one of the wire's error codes stands for."""
    match code:
        case ErrorCode.INVALID_REQUEST:
            return Failure(InvalidRequest(text))
        case ErrorCode.OVERLOADED:
            retry_after_s = _USUAL_HINT_S if retry_after_ms is None else retry_after_ms / 1000
            return Failure(Overloaded(text, retry_after_s), Retry.LATER)
        case ErrorCode.DRAINING:
            return _down(TransportError(f"the server is stopping: {text}"))
        case ErrorCode.RESTARTING:
            return Failure(ServerError(f"the engine is restarting: {text}"), Retry.WAIT)
        case ErrorCode.DEADLINE_EXCEEDED:
            return Failure(DeadlineExceeded(text))
        case ErrorCode.CANCELLED:
            return Failure(Cancelled(text))
        case ErrorCode.SESSION_LOST:
            return Failure(SessionLost(text), Retry.LATER)
        case ErrorCode.SUSPECT:
            return Failure(SuspectRequest(text))
        case _:
            return Failure(ServerError(text))


def hung(address: str, silent_s: float) -> Failure:
    """A server whose connection is open, but that sends nothing, not even a sign of life."""
    return _down(TransportError(f"{address} does not answer (silent for {silent_s:.0f} s, and not alive when probed)"))


def _down(error: RequestError) -> Failure:
    return Failure(error, Retry.WAIT, server_down=True)


def _is_starting_or_stopping(message: str) -> bool:
    """Triton's words while it loads or unloads its models; NOT_FOUND, INVALID_ARGUMENT or UNAVAILABLE by release."""
    return "unknown model" in message or "no available versions" in message or "is not ready" in message


_TLS_CAUSES = (
    ("WRONG_VERSION_NUMBER", "it does not speak TLS; leave TLS off (no grpcs://) or check the port"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not signed by a trusted authority; give the right one (--tls-ca)"),
    ("Hostname Verification", "its certificate is for another name; dial that name or give it as the server name"),
    ("security handshaker", "the TLS files given are not usable PEM certificates and keys"),
)


def _unreachable(message: str, address: str) -> Failure:
    """UNAVAILABLE without a wire error code: gRPC itself could not talk to the server."""
    for sign, cause in _TLS_CAUSES:  # trying again would only fail again
        if sign in message:
            return Failure(TransportError(f"no TLS connection to {address}: {cause}"), server_down=True)
    return _down(TransportError(_connection_problem(message, address)))


def _connection_problem(message: str, address: str) -> str:
    if "Connection refused" in message:
        return f"no server listens at {address}; start one with `dragoman serve`, or check the address (--server)"
    if "lookup" in message or "resolving" in message:
        return f"the host name of {address} is not known; check the address (--server)"
    if "Failed parsing HTTP/2" in message or "http1.x" in message:
        return f"{address} answers, but not gRPC: it may be Triton's HTTP or metrics port (gRPC is usually 8001)"
    if "last error" in message and ("Socket closed" in message or "reset" in message):  # while connecting, not in a call
        return (
            f"{address} closed the connection at once: it uses TLS (dial grpcs://, with a certificate if it asks for one), "
            "or it is no gRPC port (usually 8001)"
        )
    return f"the connection to {address} broke: {message or 'no reason was given'}"


def _no_dragoman(address: str, message: str) -> ServerError:
    return ServerError(f"{address} does not serve dragoman: {message}; check the address (--server) and `dragoman status`")
