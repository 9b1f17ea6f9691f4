"""The one exception tree.

DragomanError
├── UsageError           the command line or a call is impossible as written; exit code 2
├── ExportError          the checkpoint, the conversion or the verification
│   ├── CheckpointError      not a checkpoint, or one that can't be read whole
│   ├── VerificationError    the exported graphs do not generate what the original generates
│   └── EngineBuildError     TensorRT could not build an engine
├── BundleError          a bundle that can't be trusted: missing, tampered, too new
├── ServeError           the server can't start or can't go on: port in use, no memory, no Triton
└── RequestError         one request failed; other requests are not affected
    ├── InvalidRequest       the caller's fault; retrying won't help
    ├── Overloaded           refused at admission; retry after `retry_after_s`
    ├── DeadlineExceeded     the time the caller gave has passed
    ├── Cancelled            the caller went away
    ├── SuspectRequest       two engines died with this request in hand; it is not tried again
    └── ServerError          the server's fault
        ├── SessionLost          a client-driven decoding is not there any more: idle too long, closed, restarted
        └── TransportError       the server could not be reached, or the connection broke

A message names the cause, the value and the way out.
"""

from __future__ import annotations

__all__ = [
    "BundleError",
    "Cancelled",
    "CheckpointError",
    "DeadlineExceeded",
    "DragomanError",
    "EngineBuildError",
    "ExportError",
    "InvalidRequest",
    "Overloaded",
    "RequestError",
    "ServeError",
    "ServerError",
    "SuspectRequest",
    "Timeout",
    "TransportError",
    "UsageError",
    "VerificationError",
]


class DragomanError(Exception):
    """Everything dragoman raises on purpose."""


class UsageError(DragomanError):
    """The command line or a call is impossible as written."""


class ExportError(DragomanError):
    """A checkpoint could not be turned into a bundle; nothing was written."""


class CheckpointError(ExportError):
    """Not a checkpoint, or one that can't be read whole."""


class VerificationError(ExportError):
    """The exported graphs do not generate what the original model generates."""


class EngineBuildError(ExportError):
    """TensorRT could not parse a graph or build an engine from it."""


class BundleError(DragomanError):
    """A bundle that can't be trusted: missing, tampered with, or too new."""


class ServeError(DragomanError):
    """The server can't start or can't go on."""


class RequestError(DragomanError):
    """One request failed; other requests are not affected."""


class InvalidRequest(RequestError):
    """The caller's fault; retrying won't help."""


class Overloaded(RequestError):
    """Refused at admission; try again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float = 0.5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(RequestError):
    """The time the caller gave has passed."""


Timeout = DeadlineExceeded
"""The name that callers of other client libraries look for."""


class Cancelled(RequestError):
    """The caller went away before the answer."""


class SuspectRequest(RequestError):
    """Two engines died while they worked on this request; it is not tried again."""


class ServerError(RequestError):
    """The server failed to answer a valid request."""


class SessionLost(ServerError):
    """A client-driven decoding is not there any more: idle too long, closed, or the engine was restarted."""


class TransportError(ServerError):
    """The server could not be reached, or the connection broke."""
