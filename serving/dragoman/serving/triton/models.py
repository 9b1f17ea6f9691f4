"""What our four Triton models do: take a request's bytes, hand them to the engine process, send back what it says.

For where the door (`dragoman.door`), which does the same in C++, is not built.
Runs inside Triton's Python stub, and is the only module beside `publisher` that sees Triton's own types. A stub that
dies is not restarted by Triton, so nothing here parses, computes or trusts: that is the engine process's work.
"""

# ruff: noqa: ANN401 - Triton's types exist inside its stub only

from __future__ import annotations

import gc
import os
import struct
from typing import Any, ClassVar

import numpy as np
import triton_python_backend_utils as pb

from dragoman import wire
from dragoman.serving.failures import Failure
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.triton.publisher import Publisher
from dragoman.serving.triton.stub_link import SUPERVISOR_VARIABLE, StubLink

__all__ = ["DecoderModel", "EncoderModel", "TranslateModel", "TranslateStreamModel"]

_START_TIMEOUT_S = 3600.0  # a large model may take its time; the supervisor gives up earlier and says why

_STATUS = {  # names, for Triton's types are there only after this module was imported
    wire.ErrorCode.INVALID_REQUEST: "INVALID_ARG",
    wire.ErrorCode.OVERLOADED: "UNAVAILABLE",
    wire.ErrorCode.DRAINING: "UNAVAILABLE",
    wire.ErrorCode.RESTARTING: "UNAVAILABLE",
    wire.ErrorCode.DEADLINE_EXCEEDED: "CANCELLED",
    wire.ErrorCode.CANCELLED: "CANCELLED",
    wire.ErrorCode.SESSION_LOST: "NOT_FOUND",
    wire.ErrorCode.INTERNAL: "INTERNAL",
}

Outputs = list[tuple[str, Any]]
"""Names of output tensors and their values."""


class _Reply:
    """Sends what the engine says about one request; `_outputs` knows how its answer is laid out."""

    def __init__(self, request: Any) -> None:
        self._sender = request.get_response_sender()
        # Triton drops what the caller did not ask for, but only after it went through shared memory.
        self._wanted = request.requested_output_names()

    def deliver(self, frame: Frame) -> None:
        tensors = [pb.Tensor(name, values) for name, values in self._outputs(frame) if name in self._wanted]
        self._send(pb.InferenceResponse(tensors), last=frame.kind is Kind.ANSWER)

    def fail(self, failure: Failure) -> None:
        status = getattr(pb.TritonError, _STATUS[failure.code])
        self._send(pb.InferenceResponse([], error=pb.TritonError(failure.text, status)), last=True)

    def is_cancelled(self) -> bool:
        return bool(self._sender.is_cancelled())

    def _send(self, response: Any, last: bool) -> None:
        self._sender.send(response, flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)

    def _outputs(self, frame: Frame) -> Outputs:
        raise NotImplementedError


class _TranslateReply(_Reply):
    def _outputs(self, frame: Frame) -> Outputs:
        details, shape, scores, counts, *texts = frame.parts
        grid = struct.unpack("<II", shape)  # (texts, hypotheses)
        return [
            (wire.TRANSLATION.name, _strings(texts).reshape(grid)),
            (wire.SCORE.name, np.frombuffer(scores, np.float32).reshape(grid)),
            (wire.TOKEN_COUNT.name, np.frombuffer(counts, np.int32).reshape(grid)),
            (wire.DETAILS.name, _strings([details])),
        ]


class _StreamReply(_Reply):
    def _outputs(self, frame: Frame) -> Outputs:
        chunk, details = frame.parts
        return [
            (wire.CHUNK.name, _strings([chunk])),
            (wire.FINAL.name, np.array([frame.kind is Kind.ANSWER])),
            (wire.DETAILS.name, _strings([details])),
        ]


class _EncoderReply(_Reply):
    def _outputs(self, frame: Frame) -> Outputs:
        session, model_info = frame.parts
        return [(wire.SESSION.name, _strings([session])), (wire.MODEL_INFO.name, _strings([model_info]))]


class _DecoderReply(_Reply):
    def _outputs(self, frame: Frame) -> Outputs:
        shape, tokens, log_probs, logits, *texts = frame.parts
        grid = struct.unpack("<II", shape)  # (rows, candidates)
        return [
            (wire.BEST_TOKENS.name, np.frombuffer(tokens, np.int32).reshape(grid)),
            (wire.BEST_LOG_PROBS.name, np.frombuffer(log_probs, np.float32).reshape(grid)),
            (wire.BEST_LOGITS.name, np.frombuffer(logits, np.float32).reshape(grid)),
            (wire.DECODED.name, _strings(texts)),
        ]


class _Model:
    """The life of a Triton model: connect, hand requests on, disconnect."""

    contract: ClassVar[wire.TritonModel]
    kind: ClassVar[Kind]
    reply: ClassVar[type[_Reply]]

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 - Triton's signature
        """Return when the engines are ready, so that Triton's readiness is true."""
        self._link = self._connect(os.environ[SUPERVISOR_VARIABLE])
        self._link.wait_until_routed(_START_TIMEOUT_S)
        gc.freeze()  # as in the engine: no pauses for what was imported

    def execute(self, requests: list[Any]) -> None:
        """Returning None keeps the response senders open: requests are answered one by one, when they are done."""
        for request in requests:
            self._link.submit(self.kind, self._parts(request), self.reply(request))

    def finalize(self) -> None:
        self._link.close()

    def _connect(self, supervisor: str) -> StubLink:
        return StubLink(supervisor, self.contract.name)

    def _parts(self, request: Any) -> tuple[bytes, ...]:
        """Options first (the decoder's session), then the texts."""
        return (*_elements(request, wire.OPTIONS.name, missing=(b"",)), *_elements(request, wire.TEXT.name))


class TranslateModel(_Model):
    """`translate`: unary."""

    contract, kind, reply = wire.TRANSLATE, Kind.TRANSLATE, _TranslateReply


class TranslateStreamModel(_Model):
    """`translate_stream`: decoupled."""

    contract, kind, reply = wire.TRANSLATE_STREAM, Kind.STREAM, _StreamReply


class EncoderModel(_Model):
    """`encoder`: opens a session. Its stub has little to do, so it also publishes everybody's metrics."""

    contract, kind, reply = wire.ENCODER, Kind.ENCODE, _EncoderReply

    def _connect(self, supervisor: str) -> StubLink:
        self._publisher = Publisher(pb)
        return StubLink(supervisor, self.contract.name, self._publisher.take, self._publisher.take_table)

    def finalize(self) -> None:
        super().finalize()
        self._publisher.close()


class DecoderModel(_Model):
    """`decoder`: a step of a session, its text, or its end."""

    contract, kind, reply = wire.DECODER, Kind.DECODE, _DecoderReply

    def _parts(self, request: Any) -> tuple[bytes, ...]:
        names = (wire.SESSION.name, wire.COMMAND.name, wire.STEP.name)
        return tuple(part for name in names for part in _elements(request, name, missing=(b"",)))


def _elements(request: Any, name: str, missing: tuple[bytes, ...] = ()) -> tuple[bytes, ...]:
    tensor = pb.get_input_tensor_by_name(request, name)
    return missing if tensor is None else tuple(tensor.as_numpy().reshape(-1).tolist())


def _strings(values: list[bytes]) -> Any:
    return np.array(values, dtype=np.object_)
