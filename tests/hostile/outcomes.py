"""How a call ended, in one word: what every round of the suite counts."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.wire import ErrorCode
from served import StreamError, stream_pieces

CODES = {code.value for code in ErrorCode}
REVEALING = re.compile(r"Traceback|File \"|\.py\b|/tmp/|/home/|site-packages|0x[0-9a-f]{6,}")
"""What an error message must never have: traces, paths, addresses."""

LOST = "connection lost"
UNENDED = "stream without an end"
ERROR_RESPONSE = "error response on a stream"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`ok`, a code of the wire, `LOST`, or Triton's own refusal as `triton STATUS`."""

    code: str
    message: str = ""
    seconds: float = 0.0

    @property
    def is_answer(self) -> bool:
        """Is it something that a server which is up may say?"""
        return self.code not in (LOST, UNENDED, ERROR_RESPONSE) and not REVEALING.search(self.message)


def unary(
    stub: service_pb2_grpc.GRPCInferenceServiceStub, message: service_pb2.ModelInferRequest, timeout_s: float = 30
) -> Outcome:
    """Send it and wait."""
    began_s = time.monotonic()
    try:
        stub.ModelInfer(message, timeout=timeout_s)
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    return Outcome("ok", seconds=time.monotonic() - began_s)


def stream(
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    *messages: service_pb2.ModelInferRequest,
    timeout_s: float = 30,
    metadata: Sequence[tuple[str, str]] = (("triton_grpc_error", "true"),),
) -> Outcome:
    """Read a stream to its end; by default with the metadata that makes an error response dangerous."""
    began_s, last = time.monotonic(), None
    try:
        for last in stream_pieces(stub.ModelStreamInfer(iter(messages), timeout=timeout_s, metadata=metadata)):  # noqa: B007
            pass
    except StreamError as error:
        # Triton refuses in this way what does not fit a model's signature; what comes from our backend begins with a code.
        text = str(error).removeprefix("error response: ")
        code = ERROR_RESPONSE if _code(text) else "triton error_message"
        return Outcome(code, text, time.monotonic() - began_s)
    except grpc.RpcError as error:
        found = failed(error, time.monotonic() - began_s)
        ours = found.code in CODES and found.code != "CANCELLED"
        return Outcome(ERROR_RESPONSE, found.message, found.seconds) if ours else found
    seconds = time.monotonic() - began_s
    if last is None or not last["final"]:
        return Outcome(UNENDED, seconds=seconds)
    if error := last["details"].get("error"):
        return Outcome(error["code"], error["message"], seconds)
    return Outcome("ok", seconds=seconds)


def failed(error: grpc.RpcError, seconds: float = 0.0) -> Outcome:
    """What a failed call says."""
    details = error.details() or ""
    if code := _code(details):
        return Outcome(code, details, seconds)
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Outcome(LOST, details, seconds)
    return Outcome(f"triton {error.code().name}", details, seconds)


def _code(text: str) -> str | None:
    """The wire's code that a message begins with."""
    word = re.match(r"([A-Z_]+)(?: retry_after_ms=\d+)?: ", text)
    return word[1] if word and word[1] in CODES else None
