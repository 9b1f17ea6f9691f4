"""A real gRPC server that speaks Triton's protocol and answers after a delay that the test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.wire import WIRE_VERSION


@dataclass
class Script:
    """What the server does with request number `n`, and what it saw."""

    delay_s: Callable[[int], float] = lambda _: 0.0
    error: Callable[[int], tuple[grpc.StatusCode, str] | None] = lambda _: None
    translate: Callable[[str, int], str] = lambda text, _: text.upper()
    tokens: int = 5
    untold: tuple[str, ...] = ()
    stalls_until: float = 0.0
    received: list[str] = field(default_factory=list)
    options: list[dict[str, object]] = field(default_factory=list)
    service_times_s: list[float] = field(default_factory=list)
    most_at_once: int = 0


def _bytes(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def _details(script: Script) -> str:
    about = {"source_tokens": 3, "queue_ms": 2.0, "first_token_ms": 3.0, "total_ms": 4.0, "steps": 3 * script.tokens}
    about |= {"target_tokens": script.tokens, "score": -0.5}
    for name in script.untold:
        del about[name]
    return json.dumps({"wire_version": WIRE_VERSION, "model": "scripted", "version": "1", "texts": [about]})


class _Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._at_once = 0

    async def ModelInfer(self, request, context) -> service_pb2.ModelInferResponse:  # noqa: N802, ANN001
        if request.model_name != "translate":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.model_name}' is not found")
        text, number = self._note(request)
        began = time.monotonic()
        self._at_once += 1
        self._script.most_at_once = max(self._script.most_at_once, self._at_once)
        try:
            await self._wait(number)
        finally:
            self._at_once -= 1
        if (problem := self._script.error(number)) is not None:
            await context.abort(*problem)
        response = service_pb2.ModelInferResponse(model_name="translate")
        for name, kind, shape, raw in (
            ("TRANSLATION", "BYTES", (1, 1), _bytes(self._script.translate(text, number))),
            ("SCORE", "FP32", (1, 1), struct.pack("<f", -0.5)),
            ("TOKEN_COUNT", "INT32", (1, 1), struct.pack("<i", self._script.tokens)),
            ("DETAILS", "BYTES", (1,), _bytes(_details(self._script))),
        ):
            response.outputs.add(name=name, datatype=kind, shape=shape)
            response.raw_output_contents.append(raw)
        self._script.service_times_s.append(time.monotonic() - began)
        return response

    async def ModelStreamInfer(self, requests, context) -> AsyncIterator[service_pb2.ModelStreamInferResponse]:  # noqa: N802, ANN001
        async for request in requests:
            text, number = self._note(request)
            words = self._script.translate(text, number).split(" ")
            for place, word in enumerate(words):
                await self._wait(number)
                if (problem := self._script.error(number)) is not None:
                    yield self._refusal(problem[1])
                    return
                final = place == len(words) - 1
                yield self._chunk(word if place == 0 else f" {word}", final)

    def _refusal(self, message: str) -> service_pb2.ModelStreamInferResponse:
        code, _, text = message.partition(": ")
        error = {"code": code.split()[0], "message": text, "retry_after_ms": None}
        return self._chunk("", True, json.dumps({"wire_version": WIRE_VERSION, "error": error}))

    def _chunk(self, chunk: str, final: bool, details: str = "") -> service_pb2.ModelStreamInferResponse:
        response = service_pb2.ModelStreamInferResponse()
        for name, kind, raw in (
            ("CHUNK", "BYTES", _bytes(chunk)),
            ("FINAL", "BOOL", b"\x01" if final else b"\x00"),
            ("DETAILS", "BYTES", _bytes(details or (_details(self._script) if final else "{}"))),
        ):
            response.infer_response.outputs.add(name=name, datatype=kind, shape=(1,))
            response.infer_response.raw_output_contents.append(raw)
        return response

    def _note(self, request) -> tuple[str, int]:  # noqa: ANN001
        named = zip((tensor.name for tensor in request.inputs), request.raw_input_contents, strict=True)
        inputs = {name: raw[4:].decode() for name, raw in named}
        text, options = inputs["TEXT"], json.loads(inputs["OPTIONS"])
        self._script.received.append(text)
        self._script.options.append({**options, "MODEL": inputs["MODEL"]} if "MODEL" in inputs else options)
        return text, len(self._script.received) - 1

    async def _wait(self, number: int) -> None:
        await asyncio.sleep(self._script.delay_s(number))
        while (left_s := self._script.stalls_until - time.monotonic()) > 0:
            await asyncio.sleep(left_s)


@contextlib.contextmanager
def serving(script: Script, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """The server's address while it runs, in a thread with its own event loop."""
    started, addresses = threading.Event(), []
    # select() keeps a delay to microseconds; epoll would round it up to the next millisecond.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    leave = asyncio.Event()

    async def main() -> None:
        server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Servicer(script), server)
        anywhere = "127.0.0.1:0"
        port = server.add_secure_port(anywhere, credentials) if credentials else server.add_insecure_port(anywhere)
        addresses.append(f"127.0.0.1:{port}")
        await server.start()
        started.set()
        await leave.wait()
        await server.stop(grace=None)

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(120)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(120)
        assert not thread.is_alive()
