"""Our backend in the real Triton, between a supervisor and an engine that do what the test wants."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2

from dragoman import native
from dragoman.serving.ipc.channel import Channel, ChannelClosed
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.metrics import series_frame
from dragoman.serving.supervisor.ports import free_port
from dragoman.serving.triton.flags import Address, TritonFlags
from dragoman.serving.triton.installation import SUPERVISOR_VARIABLE, find_installation, model_repository
from dragoman.serving.triton.routes import RoutingTable
from dragoman.wire import WIRE_VERSION, Limits
from served import Caller, StreamError, add_bytes, eventually, outputs, request, stream_pieces

GRID = struct.pack("<II", 1, 1)
GOOD = (b"{}", GRID, struct.pack("<f", -0.5), struct.pack("<i", 3), b"gut")
STATUS = {"wire_version": WIRE_VERSION, "server": "0", "metrics": None, "bundles": [{"name": "en-de"}]}
STRICT = [("triton_grpc_error", "true")]

pytestmark = pytest.mark.skipif(native.backend_library() is None, reason="the Triton backend is not built")


@contextlib.contextmanager
def listening(path: Path, answer: Callable[[Channel, Frame], None]) -> Iterator[None]:
    """Answer every process that connects to `path`."""
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(str(path))
        listener.listen()
        selector.register(listener, selectors.EVENT_READ)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.05):
                    if key.fileobj is listener:
                        selector.register(Channel(listener.accept()[0]), selectors.EVENT_READ)
                        continue
                    channel = cast(Channel, key.fileobj)
                    try:
                        for frame in channel.receive():
                            answer(channel, frame)
                    except ChannelClosed:
                        selector.unregister(channel)
                        channel.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for key in list(selector.get_map().values()):
                if isinstance(key.fileobj, Channel):
                    key.fileobj.close()


def answer(channel: Channel, frame: Frame) -> None:
    """An engine that does what the text says."""
    text = frame.parts[2] if len(frame.parts) > 2 else b""
    if text == b"refused":
        channel.send(Frame(Kind.ERROR, frame.request, (b"OVERLOADED", b'OVERLOADED retry_after_ms=7: "full"\t')))
    elif frame.kind is Kind.TRANSLATE:
        channel.send(Frame(Kind.ANSWER, frame.request, (b"{}",) if text == b"broken" else GOOD))
    elif frame.kind is Kind.STREAM:
        channel.send(Frame(Kind.CHUNK, frame.request, () if text == b"broken" else (b"a piece", b"{}")))
        channel.send(Frame(Kind.ANSWER, frame.request, (b"", b"{}")))


def processor_s(triton: Triton) -> float:
    """How long it has computed: unlike its answers, a busy machine delays nothing of that."""
    times = psutil.Process(triton.process.pid).cpu_times()
    return times.user + times.system


class Triton:
    """A tritonserver with our models, and nothing of ours around it but the sockets the backend connects to."""

    def __init__(self, scratch: Path, table: RoutingTable) -> None:
        self.log = scratch / "log"
        self._scratch, self._table = scratch, table

    @contextlib.contextmanager
    def running(self) -> Iterator[Caller]:
        scratch, address = self._scratch, Address("127.0.0.1", free_port("127.0.0.1"))

        def route(channel: Channel, _hello: Frame) -> None:
            channel.send(series_frame())
            channel.send(self._table.frame())

        installation = find_installation(scratch / "triton")
        directories = model_repository(), installation.backend_directory
        flags = TritonFlags(*directories, address, None, secrets.token_hex(8), exit_timeout_s=1)
        environment = {**os.environ, **installation.environment, SUPERVISOR_VARIABLE: str(scratch / "routes.sock")}
        supervisor, engine = listening(scratch / "routes.sock", route), listening(scratch / "en-de-1.sock", answer)
        with self.log.open("w") as log, supervisor, engine:
            self.process = subprocess.Popen([installation.binary, *flags.argv()], env=environment, stdout=log, stderr=log)
            caller = Caller(str(address))
            try:
                grpc.channel_ready_future(caller.channel).result(120)
                yield caller
            finally:
                caller.close()
                self.process.terminate()
                self.process.wait(120)


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    with tempfile.TemporaryDirectory() as name:  # unix sockets have short names only
        scratch = Path(name)
        yield Triton(scratch, RoutingTable(("en-de",), {"en-de": (str(scratch / "en-de-1.sock"),)}, status=STATUS))


@pytest.fixture(scope="module")
def caller(triton: Triton) -> Iterator[Caller]:
    with triton.running() as caller:
        yield caller


@pytest.fixture(autouse=True)
def triton_stays_up(triton: Triton, caller: Caller) -> Iterator[None]:
    yield
    assert triton.process.poll() is None
    assert caller.translate(["good"]).best == ["gut"]


def refusal(caller: Caller, message: service_pb2.ModelInferRequest) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        caller.stub.ModelInfer(message, timeout=600)
    return refused.value.code(), refused.value.details()


def stream_error(caller: Caller, message: service_pb2.ModelInferRequest) -> dict[str, Any]:
    """DETAILS.error of a stream that has no other response."""
    (last,) = stream_pieces(caller.stub.ModelStreamInfer(iter([message]), timeout=600, metadata=STRICT))
    assert (last["chunk"], last["final"], last["details"]["wire_version"]) == ("", True, WIRE_VERSION)
    error: dict[str, Any] = last["details"]["error"]
    return error


class TestBrokenEngine:
    def test_an_answer_that_can_not_be_read_fails_alone_and_is_logged(self, triton: Triton, caller: Caller) -> None:
        code, details = refusal(caller, request("translate", ["broken"], {}))
        assert code is grpc.StatusCode.INTERNAL
        assert details.startswith("INTERNAL: ")
        assert eventually(lambda: "an engine's answer can't be passed on" in triton.log.read_text())

    def test_a_stream_that_lacks_a_piece_does_not_end_as_if_it_were_whole(self, caller: Caller) -> None:
        assert [each["chunk"] for each in caller.stream("good")] == ["a piece", ""]
        with pytest.raises(StreamError, match="INTERNAL"):
            list(caller.stream("broken"))


class TestRefusedStreams:
    def test_end_with_an_ordinary_response(self, caller: Caller) -> None:
        error = stream_error(caller, request("translate_stream", ["refused"], {}))
        assert error == {"code": "OVERLOADED", "message": '"full"\t', "retry_after_ms": 7}

    def test_have_their_error_even_if_only_chunks_were_requested(self, caller: Caller) -> None:
        message = request("translate_stream", ["refused"], {})
        message.outputs.add(name="CHUNK")
        assert stream_error(caller, message)["code"] == "OVERLOADED"

    def test_never_bring_triton_down(self, caller: Caller) -> None:
        for number in range(300):
            text = "refused" if number % 2 else "x" * 100_001
            assert stream_error(caller, request("translate_stream", [text], {}))["code"] in ("OVERLOADED", "INVALID_REQUEST")


class TestClassification:
    """A parameter that Triton's front end handles by itself; in 2.51 it divides by zero for outputs of type BYTES."""

    @pytest.mark.parametrize(
        ("model", "output"), [("translate", "TRANSLATION"), ("translate", "SCORE"), ("server_status", "STATUS")]
    )
    def test_of_an_output_does_not_bring_triton_down(self, caller: Caller, model: str, output: str) -> None:
        message = service_pb2.ModelInferRequest(model_name=model)
        if model == "translate":
            add_bytes(message, "TEXT", [b"good"])
        message.outputs.add(name=output).parameters["classification"].int64_param = 1
        assert [each.name for each in caller.stub.ModelInfer(message, timeout=600).outputs] == [output]

    @pytest.mark.parametrize("text", ["good", "refused"])
    def test_of_a_stream_does_not_bring_triton_down(self, caller: Caller, text: str) -> None:
        message = request("translate_stream", [text], {})
        message.outputs.add(name="CHUNK").parameters["classification"].int64_param = 1
        for _ in range(150):
            assert list(caller.stub.ModelStreamInfer(iter([message]), timeout=600, metadata=STRICT))


class TestStatus:
    def test_is_what_the_supervisor_sent(self, caller: Caller) -> None:
        assert caller.status() == STATUS

    def test_takes_a_query(self, caller: Caller) -> None:
        message = service_pb2.ModelInferRequest(model_name="server_status")
        add_bytes(message, "QUERY", [b"anything"])
        assert json.loads(outputs(caller.stub.ModelInfer(message, timeout=600))["STATUS"][0]) == STATUS

    def test_refuses_a_query_that_is_too_long(self, caller: Caller) -> None:
        message = service_pb2.ModelInferRequest(model_name="server_status")
        add_bytes(message, "QUERY", [bytes(16_385)])
        assert "QUERY has 16385 bytes; this server takes 16384" in refusal(caller, message)[1]


LIMITS = Limits()
TOO_MUCH = [
    (["a"] * 257, {}, None, "257 texts are too many; this server takes 256"),
    (["a" * 100_001], {}, None, "the text has 100001 bytes; this server takes 100000"),
    (["a", "b" * 100_001], {}, None, "text 1 has 100001 bytes; this server takes 100000"),
    (["a" * 99_000] * 90, {}, None, "the request has 8910360 bytes; this server takes 8388608"),
    (["a"], b" " * 16_385, None, "OPTIONS has 16385 bytes; this server takes 16384"),
    (["a"], {}, "x" * 257, "MODEL has 257 bytes; this server takes 256"),
    (["a"], {}, "fr-en", "there is no model 'fr-en' here; this server has en-de"),
]


class TestLimits:
    @pytest.mark.parametrize("model", ["translate", "encoder", "translate_stream"])
    @pytest.mark.parametrize(("texts", "options", "bundle", "complaint"), TOO_MUCH)
    def test_a_refusal_names_the_value_and_the_limit(
        self, caller: Caller, model: str, texts: list[str], options: Any, bundle: str | None, complaint: str
    ) -> None:
        message = request(model, texts, options, bundle)
        if model == "translate_stream":
            error = stream_error(caller, message)
            assert error["code"] == "INVALID_REQUEST"
            assert complaint in error["message"]
        else:
            code, details = refusal(caller, message)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert details.startswith("INVALID_REQUEST: ")
            assert complaint in details

    @pytest.mark.parametrize(
        ("name", "complaint"),
        [
            ("SESSION", "SESSION has 300000 bytes"),
            ("COMMAND", "COMMAND has 300000 bytes"),
            ("STEP", "STEP has 300000 bytes"),
        ],
    )
    def test_hold_for_sessions(self, caller: Caller, name: str, complaint: str) -> None:
        message = service_pb2.ModelInferRequest(model_name="decoder")
        for each in ("SESSION", "COMMAND", "STEP"):
            add_bytes(message, each, [bytes(300_000) if each == name else b"x"])
        assert complaint in refusal(caller, message)[1]

    def test_two_million_empty_texts_are_refused_without_looking_at_them(self, triton: Triton, caller: Caller) -> None:
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype="BYTES", shape=[2_000_000])
        message.raw_input_contents.append(bytes(4 * 2_000_000))
        computed_s = processor_s(triton)
        assert "2000000 texts are too many" in refusal(caller, message)[1]
        assert processor_s(triton) - computed_s < 1.0  # most of it is gRPC's
