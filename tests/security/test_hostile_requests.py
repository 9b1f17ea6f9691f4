"""Whatever is sent, the answer is a sentence for the sender; the neighbours, the server and the log notice nothing."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Iterator

import grpc
import pytest
from tritonclient.grpc import service_pb2

from served import Caller, Server, add_bytes, request

INVALID = grpc.StatusCode.INVALID_ARGUMENT
BETRAYAL = re.compile(r"Traceback|File \"|\.py\b|/tmp/|/home/|site-packages|0x[0-9a-f]{6,}")


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    caller = server.caller()
    yield caller
    caller.close()


@pytest.fixture(autouse=True)
def server_is_unimpressed(server: Server, caller: Caller) -> Iterator[None]:
    """After every test: the same processes, and a right answer."""
    before = server.children()
    yield
    assert server.children() == before
    assert caller.translate(["It is raining."], cache=False).best == caller.translate(["It is raining."]).best


def refused(caller: Caller, message: service_pb2.ModelInferRequest) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        caller.stub.ModelInfer(message, timeout=30)
    assert not BETRAYAL.search(error.value.details())
    return error.value


class TestText:
    @pytest.mark.parametrize(
        ("texts", "complaint"),
        [
            ([b""], "the text is empty"),
            ([b" \t\n"], "the text is empty"),
            ([b"\xff\xfe\x00"], "not UTF-8"),
            ([b"good", b"\xc3\x28"], "text 1 is not UTF-8"),
            ([b"bell \x07"], r"control character U\+0007"),
            ([b"x" * 100_001], "100001 bytes; this server takes 100000"),
            ([b"a"] * 257, "257 texts are too many; this server takes 256"),
        ],
    )
    def test_is_refused_with_the_reason(self, caller: Caller, texts: list[bytes], complaint: str) -> None:
        error = refused(caller, request("translate", texts, {}))
        assert error.code() is INVALID
        assert re.search(f"^INVALID_REQUEST: .*{complaint}", error.details())

    def test_neighbours_of_a_bad_request_get_their_answers(self, caller: Caller) -> None:
        good = ["It is raining.", "Tom is reading a book.", "Where is the station?"]
        alone = [caller.translate([text], cache=False).best for text in good]
        together = [caller.translate_later([text], cache=False) for text in good for _ in range(2)]
        bad = [caller.translate_later([text], cache=False) for text in (b"\xff", b"", b"\x00") for _ in range(4)]
        assert [caller.answer(future.result()).best for future in together[::2]] == alone
        assert all(future.exception().code() is INVALID for future in bad)

    def test_no_text_at_all_is_refused(self, caller: Caller) -> None:
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype="BYTES", shape=[0])
        refused(caller, message)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            (b'{"beam_size": 1000000}', r"more than this server allows \(16\)"),
            (b'{"beam_size": -4}', "at least 1"),
            (b'{"max_length": -1}', "at least 1"),
            (b'{"max_length": 100000000}', "more than the model can write"),
            (b'{"colour": "red"}', "unknown option 'colour'"),
            (b'{"model": "fr-en"}', "there is no model 'fr-en' here; this server has en-de"),
            (b"beam_size=4", "not JSON"),
            (b"[1, 2]", "must be a JSON object"),
            (b"\xff", "not UTF-8"),
            (b"{" * 10_000, "not JSON"),
            (b"[" * 16_000, "not JSON"),
            (b" " * 20_000, "20000 bytes"),
            (b'{"seed": 1e999}', "seed"),
            (b'{"timeout_ms": -1}', "timeout_ms=-1"),
            (b'{"prefix": [999999999]}', "not in the vocabulary"),
            (b'{"prefix_text": "\\u0000"}', "control character"),
        ],
    )
    def test_are_refused_with_the_reason(self, caller: Caller, options: bytes, complaint: str) -> None:
        error = refused(caller, request("translate", ["Hello."], options))
        assert error.code() is INVALID
        assert re.search(f"^INVALID_REQUEST: .*{complaint}", error.details())


class TestTensors:
    def test_a_model_that_is_not_there_is_refused(self, caller: Caller) -> None:
        error = refused(caller, request("no_such_model", ["Hello."], {}))
        assert error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE, INVALID)

    @pytest.mark.parametrize("shape", [[2**62], [1, 2**62], [-1], [2**31], [1, 1], [0, 5]])
    def test_a_shape_without_its_data_is_refused(self, caller: Caller, shape: list[int]) -> None:
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype="BYTES", shape=shape)
        message.raw_input_contents.append(b"")
        refused(caller, message)

    @pytest.mark.parametrize("datatype", ["INT64", "FP32", "UINT8", "BOOL"])
    def test_numbers_instead_of_text_are_refused(self, caller: Caller, datatype: str) -> None:
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype=datatype, shape=[1])
        message.raw_input_contents.append(bytes(8))
        assert refused(caller, message).code() is INVALID

    @pytest.mark.parametrize(
        "raw",
        [
            b"\xff\xff\xff\xff",
            struct.pack("<I", 100) + b"short",
            struct.pack("<I", 0xFFFFFFF0) + b"x" * 10,
            b"\x05\x00",
            struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b",
        ],
    )
    def test_bytes_with_lengths_that_lie_are_refused(self, caller: Caller, raw: bytes) -> None:
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
        message.raw_input_contents.append(raw)
        refused(caller, message)

    def test_an_input_that_nobody_knows_is_refused(self, caller: Caller) -> None:
        message = request("translate", ["Hello."], {})
        add_bytes(message, "PASSWORD", [b"x"])
        assert refused(caller, message).code() is INVALID

    def test_two_options_are_refused(self, caller: Caller) -> None:
        message = request("translate", ["Hello."], {})
        add_bytes(message, "OPTIONS", [b"{}", b"{}"])
        assert refused(caller, message).code() is INVALID

    def test_a_payload_of_many_megabytes_is_refused(self, caller: Caller) -> None:
        error = refused(caller, request("translate", [b"x" * (48 << 20)], {}))
        assert re.search(r"bytes; this server takes 100000", error.details())

    def test_a_request_without_inputs_is_refused(self, caller: Caller) -> None:
        assert refused(caller, service_pb2.ModelInferRequest(model_name="translate")).code() is INVALID


class TestSlowCallers:
    def test_a_stream_that_nobody_reads_holds_up_nobody(self, server: Server, caller: Caller) -> None:
        lazy = [caller.stream("The old man and his dog walked along the river. " * 20, cache=False) for _ in range(4)]
        for stream in lazy:
            next(stream)
        assert caller.translate(["It is raining."], timeout_s=20, cache=False).best
        for stream in lazy:
            stream.close()  # type: ignore[attr-defined]

    def test_connections_that_say_nothing_or_rubbish_hold_up_nobody(self, server: Server, caller: Caller) -> None:
        host, _, port = server.grpc.rpartition(":")
        with contextlib.ExitStack() as open_sockets:
            for number in range(40):
                connected = open_sockets.enter_context(socket.create_connection((host, int(port)), timeout=5))
                connected.sendall(
                    [b"", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(50)][number % 4]
                )
            assert caller.translate(["It is raining."], timeout_s=20, cache=False).best


class TestSessions:
    @pytest.mark.parametrize("session", [b"en-de-1.guess", b"", b"\xff" * 50])
    def test_a_guess_opens_nothing(self, caller: Caller, session: bytes) -> None:
        with pytest.raises(grpc.RpcError) as error:
            caller.decode(session, {"do": "step", "candidates": 1}, [(0, -1, 0)])
        assert error.value.code() is grpc.StatusCode.NOT_FOUND

    @pytest.mark.parametrize(
        ("command", "step", "complaint"),
        [
            ({"do": "dance"}, [], "one of step, text, close"),
            ({"do": "step"}, [(0, -1, 0)], "how many candidates"),
            ({"do": "step", "candidates": 10**9}, [(0, -1, 0)], "candidates"),
            ({"do": "step", "candidates": 1}, [], "int32 triples"),
            ({"do": "step", "candidates": 1}, [(7, -1, 0)], ""),
            ({"do": "step", "candidates": 1}, [(0, -1, 2**30)], ""),
            ({"do": "text", "tokens": "abc"}, [], "lists of token ids"),
            ({"do": "text", "tokens": [[-1]]}, [], "lists of token ids"),
        ],
    )
    def test_an_impossible_step_is_refused(
        self, caller: Caller, command: dict[str, object], step: list[tuple[int, int, int]], complaint: str
    ) -> None:
        session, _ = caller.encode(["Hello."])
        with pytest.raises(grpc.RpcError) as error:
            caller.decode(session, command, step)
        assert error.value.code() is INVALID
        assert re.search(f"^INVALID_REQUEST: .*{complaint}", error.value.details())
        caller.decode(session, {"do": "close"})

    def test_a_parent_that_is_not_there_is_refused(self, caller: Caller) -> None:
        session, _ = caller.encode(["Hello."])
        caller.decode(session, {"do": "step", "candidates": 1}, [(0, -1, 0)])
        with pytest.raises(grpc.RpcError) as error:
            caller.decode(session, {"do": "step", "candidates": 1}, [(0, 99, 0)])
        assert error.value.code() is INVALID
        caller.decode(session, {"do": "close"})

    def test_sessions_are_bounded_and_come_back_when_closed(self, caller: Caller) -> None:
        opened: list[bytes] = []
        with pytest.raises(grpc.RpcError) as error:
            opened.extend(caller.encode(["Hello."])[0] for _ in range(1000))
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error.value.details().startswith("OVERLOADED retry_after_ms=")
        for session in opened:
            caller.decode(session, {"do": "close"})
        session, _ = caller.encode(["Hello."])
        caller.decode(session, {"do": "close"})
