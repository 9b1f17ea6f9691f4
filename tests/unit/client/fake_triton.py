"""A real gRPC server with Triton's protocol whose answers are scripted: upper case stands for a translation."""

from __future__ import annotations

import json
import struct
import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.client import Window
from dragoman.wire import WIRE_VERSION

SMALL = Window(batch_size=2, in_flight=3, held=2)  # which a few texts fill
Outputs = dict[str, tuple[str, tuple[int, ...], bytes]]


def packed(*elements: str | bytes) -> bytes:
    raw = [element.encode() if isinstance(element, str) else element for element in elements]
    return b"".join(struct.pack("<I", len(element)) + element for element in raw)


def unpacked(raw: bytes) -> list[bytes]:
    found, offset = [], 0
    while offset < len(raw):
        (size,) = struct.unpack_from("<I", raw, offset)
        found.append(raw[offset + 4 : offset + 4 + size])
        offset += 4 + size
    return found


def details(texts: list[str], wire_version: int | None = WIRE_VERSION) -> dict[str, Any]:
    about = {"source_tokens": 3, "queue_ms": 1.5, "first_token_ms": 2.5, "total_ms": 4.0, "steps": 4}
    about |= {"target_tokens": 4, "score": -0.5, "parts": 1, "cached": False, "finish": "eos"}
    named = {} if wire_version is None else {"wire_version": wire_version}
    return named | {"model": "en-de", "version": "7", "request_id": "", "texts": [about for _ in texts]}


def translated(texts: list[str], hypotheses: int = 1) -> Outputs:
    spoken = [text.upper() + "!" * number for text in texts for number in range(hypotheses)]
    scores = np.array([[-0.5 - number for number in range(hypotheses)] for _ in texts], "<f4")
    counts = np.array([[4] * hypotheses for _ in texts], "<i4")
    shape = (len(texts), hypotheses)
    return {
        "TRANSLATION": ("BYTES", shape, packed(*spoken)),
        "SCORE": ("FP32", shape, scores.tobytes()),
        "TOKEN_COUNT": ("INT32", shape, counts.tobytes()),
        "DETAILS": ("BYTES", (1,), packed(json.dumps(details(texts)))),
    }


def response_of(outputs: Outputs) -> Any:
    response = service_pb2.ModelInferResponse(model_name="translate", model_version="1")
    for name, (datatype, shape, raw) in outputs.items():
        response.outputs.add(name=name, datatype=datatype, shape=shape)
        response.raw_output_contents.append(raw)
    return response


@dataclass(frozen=True)
class Refuse:
    """An answer with a gRPC status."""

    code: grpc.StatusCode
    message: str


@dataclass(frozen=True)
class RefuseStream:
    """The last response of a stream that is refused, or that fails."""

    code: str
    message: str
    retry_after_ms: int | None = None
    wire_version: int = WIRE_VERSION

    def response(self) -> Any:
        error = {"code": self.code, "message": self.message, "retry_after_ms": self.retry_after_ms}
        details = json.dumps({"wire_version": self.wire_version, "error": error})
        outputs: Outputs = {
            "CHUNK": ("BYTES", (1,), packed("")),
            "FINAL": ("BOOL", (1,), struct.pack("?", True)),
            "DETAILS": ("BYTES", (1,), packed(details)),
        }
        return service_pb2.ModelStreamInferResponse(infer_response=response_of(outputs))


RESTARTING = Refuse(grpc.StatusCode.UNAVAILABLE, "RESTARTING: the engine died; send the request again")
INVALID = Refuse(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: beam_size=99 is more than this server allows (16)")
OVERLOADED = Refuse(grpc.StatusCode.UNAVAILABLE, "OVERLOADED retry_after_ms=1: the queue is full")
STATUS = {
    "wire_version": WIRE_VERSION,
    "server": "0.2.0",
    "metrics": None,
    "bundles": [
        {
            "name": "en-de",
            "model": "tatoeba-en-de",
            "version": "7",
            "architecture": "marian",
            "parameters": 60_000_000,
            "precision": "int8",
            "source_languages": ["en"],
            "target_languages": ["de", "nds"],
        }
    ],
}


@dataclass
class Received:
    """One request as the server got it."""

    model: str
    inputs: dict[str, list[bytes]]
    metadata: dict[str, str]
    answered: bool = False
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def texts(self) -> list[str]:
        return [text.decode() for text in self.inputs["TEXT"]]

    @property
    def options(self) -> dict[str, Any]:
        return json.loads(self.inputs["OPTIONS"][0])

    @property
    def bundle(self) -> str | None:
        return self.inputs["MODEL"][0].decode() if "MODEL" in self.inputs else None


class ScriptedTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """`answers` are used up one a request; after them every request is translated.

    `gate` closed, no call of any kind is answered: the server hangs with its connections open.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None, port: int = 0, host: str = "127.0.0.1") -> None:
        self.answers: deque[Refuse | RefuseStream | Outputs | Callable[[Received, Any], Outputs]] = deque()
        self.models: dict[str, Callable[[Received, Any], Outputs]] = {"server_status": self._server_status}
        self.status: dict[str, Any] = dict(STATUS)
        self.received: list[Received] = []
        self.chunks: list[str] = ["Wo ist ", "der ", "Bahnhof?"]
        self.ready = True
        self.wire_version: int | None = WIRE_VERSION
        self.gate = threading.Event()
        self.gate.set()
        self._server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self._host, address = host, f"{host}:{port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    @property
    def url(self) -> str:
        return f"{self._host}:{self.port}"

    def stop(self) -> None:
        self.gate.set()
        self._server.stop(grace=None).wait()

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.gate.wait()
        return service_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.gate.wait()
        return service_pb2.ServerReadyResponse(ready=self.ready)

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return service_pb2.ModelMetadataResponse(name=request.name, versions=["1"])

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.gate.wait()
        return service_pb2.ModelReadyResponse(ready=self.ready)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        received = self._receive(request, context)
        self.gate.wait()
        answer = self.answers.popleft() if self.answers else self.models.get(received.model, _translate)
        if isinstance(answer, Refuse):
            received.answered = True
            context.abort(answer.code, answer.message)
        response = response_of(answer(received, context) if callable(answer) else answer)  # type: ignore[arg-type]
        received.answered = not received.cancelled.is_set()
        return response

    def ModelStreamInfer(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        received = self._receive(next(request_iterator), context)
        self.gate.wait()
        if self.answers and isinstance(self.answers[0], RefuseStream):
            received.answered = True
            yield self.answers.popleft().response()  # type: ignore[union-attr]
            return
        if self.answers:
            self._abort_if_refused(self.answers.popleft(), context)
        for chunk in self.chunks:
            yield service_pb2.ModelStreamInferResponse(infer_response=response_of(_chunk(chunk)))
            if not self.answers:
                continue
            answer = self.answers.popleft()
            if isinstance(answer, RefuseStream):
                yield answer.response()
                return
            self._abort_if_refused(answer, context)
            if callable(answer):
                answer(received, context)
        received.answered = True
        yield service_pb2.ModelStreamInferResponse(infer_response=response_of(_chunk("", self.wire_version)))

    def _server_status(self, request: Received, context: Any) -> Outputs:
        return {"STATUS": ("BYTES", (1,), packed(json.dumps(self.status)))}

    @staticmethod
    def _abort_if_refused(answer: object, context: Any) -> None:
        if isinstance(answer, Refuse):
            context.abort(answer.code, answer.message)

    def _receive(self, request: Any, context: Any) -> Received:
        inputs = {tensor.name: unpacked(raw) for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)}
        received = Received(request.model_name, inputs, dict(context.invocation_metadata()))
        context.add_callback(lambda: None if received.answered else received.cancelled.set())
        self.received.append(received)
        return received


def _translate(request: Received, context: Any) -> Outputs:
    return translated(request.texts, request.options.get("num_hypotheses", 1))


_MORE = -1


def _chunk(text: str, last_of_version: int | None = _MORE) -> Outputs:
    final = last_of_version != _MORE
    about = json.dumps(details([text], last_of_version) if final else {})
    return {
        "CHUNK": ("BYTES", (1,), packed(text)),
        "FINAL": ("BOOL", (1,), struct.pack("?", final)),
        "DETAILS": ("BYTES", (1,), packed(about)),
    }


def until_cancelled(request: Received, context: Any) -> Outputs:
    """Answers only when the caller has gone."""
    request.cancelled.wait(120)
    return {}


def refuse_bad(request: Received, context: Any) -> Outputs:
    """Refuses a request with "bad" in one of its texts."""
    if any("bad" in text for text in request.texts):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST: a control character")
    return translated(request.texts)
