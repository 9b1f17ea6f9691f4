"""What went wrong, from a gRPC status: an error of our tree, and whether another try makes sense.

This is the only module that turns statuses into errors, so that no gRPC type ever reaches a caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import grpc

from dragoman.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
    ServerError,
    SessionLost,
    TransportError,
)
from dragoman.wire import WIRE_VERSION, ErrorCode

__all__ = ["Failure", "hung", "read_message", "read_status"]

_CODED = re.compile(r"\s*(?P<code>[A-Z_]+)(?: retry_after_ms=(?P<hint>\d+))?: (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed.

    `retryable`: the same request may be sent again. `server_down`: leave this server out for a while, others may do.
    """

    error: RequestError
    retryable: bool = False
    server_down: bool = False


def read_status(code: grpc.StatusCode, details: str | None, address: str) -> Failure:
    """The failure that a call to `address` ended with."""
    said = details or ""
    coded = read_message(said)
    if coded is not None:
        return coded
    if "no available versions" in said:  # Triton's words while it loads its models, and while it unloads them to end
        reason = f"{address} is starting or going away, or could not load its models: {said}"
        return Failure(TransportError(reason), retryable=True, server_down=True)
    if code is grpc.StatusCode.UNAVAILABLE:
        return _unreachable(said, address)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Failure(DeadlineExceeded(f"{address} did not answer in time; raise timeout_s or ask for less"))
    if code is grpc.StatusCode.CANCELLED:
        return Failure(Cancelled("the call was cancelled before its answer"))
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Failure(_no_dragoman(address, "it is no Triton server"))
    if "unknown model" in said:  # NOT_FOUND in new Tritons, INVALID_ARGUMENT or UNAVAILABLE in older ones
        return Failure(_no_dragoman(address, said))
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return Failure(
            InvalidRequest(
                f"{address} refused the request: {said} (this client speaks wire version {WIRE_VERSION}; "
                "use a server of the same dragoman release)"
            )
        )
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return Failure(TransportError(f"{address} does not let this client in: {said}"))
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Failure(InvalidRequest(f"the message is too large for {address}: {said}; send fewer texts at once"))
    return Failure(ServerError(f"{address} failed: {said or code.name.lower()}"))


def read_message(said: str) -> Failure | None:
    """The failure that a message with a wire error code names; None when it has none."""
    matched = _CODED.match(said)
    if matched is None or matched["code"] not in ErrorCode.__members__:
        return None
    text = matched["text"].strip()
    match ErrorCode[matched["code"]]:
        case ErrorCode.INVALID_REQUEST:
            return Failure(InvalidRequest(text))
        case ErrorCode.OVERLOADED:
            retry_after_s = int(matched["hint"]) / 1000 if matched["hint"] else 0.5
            return Failure(Overloaded(text, retry_after_s), retryable=True)
        case ErrorCode.DRAINING:
            return Failure(TransportError(f"the server is going away: {text}"), retryable=True, server_down=True)
        case ErrorCode.RESTARTING:
            return Failure(ServerError(f"the engine is starting again: {text}"), retryable=True)
        case ErrorCode.DEADLINE_EXCEEDED:
            return Failure(DeadlineExceeded(text))
        case ErrorCode.CANCELLED:
            return Failure(Cancelled(text))
        case ErrorCode.SESSION_LOST:
            return Failure(SessionLost(text), retryable=True)
        case _:
            return Failure(ServerError(text))


def hung(address: str, silent_s: float) -> Failure:
    """A server that keeps its connection open and says nothing, not even that it is alive."""
    message = f"{address} does not answer (silent for {silent_s:.0f} s, and not alive when asked)"
    return Failure(TransportError(message), retryable=True, server_down=True)


_TLS_CAUSES = (
    ("WRONG_VERSION_NUMBER", "it does not speak TLS; leave TLS off (no grpcs://) or check the port"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not signed by a trusted authority; give the right one (--tls-ca)"),
    ("Hostname Verification", "its certificate is for another name; dial that name or give it as the server name"),
    ("security handshaker", "the TLS files given are not usable PEM certificates and keys"),
)


def _unreachable(said: str, address: str) -> Failure:
    """UNAVAILABLE without a code of ours: gRPC itself could not talk to the server."""
    if "unknown model" in said or "is not ready" in said or "is not found" in said:
        return Failure(_no_dragoman(address, said))
    for sign, cause in _TLS_CAUSES:  # trying again would only fail again
        if sign in said:
            return Failure(TransportError(f"no TLS connection to {address}: {cause}"), server_down=True)
    return Failure(TransportError(_connection_problem(said, address)), retryable=True, server_down=True)


def _connection_problem(said: str, address: str) -> str:
    if "Connection refused" in said:
        return f"no server listens at {address}; start one with `dragoman serve`, or check the address (--to)"
    if "lookup" in said or "resolving" in said:
        return f"the host name of {address} is not known; check the address (--to)"
    if "Failed parsing HTTP/2" in said or "http1.x" in said:
        return f"{address} answers, but not gRPC: it may be Triton's HTTP or metrics port (gRPC is usually 8001)"
    if "last error" in said and ("Socket closed" in said or "reset" in said):  # while connecting, not in a call
        return (
            f"{address} closed the connection at once: it uses TLS (dial grpcs://, with a certificate if it asks for one), "
            "or it is no gRPC port (usually 8001)"
        )
    return f"the connection to {address} broke: {said or 'no reason was given'}"


def _no_dragoman(address: str, said: str) -> ServerError:
    return ServerError(f"{address} does not serve dragoman: {said}; check the address (--to) and `dragoman status`")
