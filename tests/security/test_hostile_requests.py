"""Whatever is sent, the answer is a sentence for the sender; the neighbours, the server and the log notice nothing."""

from __future__ import annotations

import contextlib
import re
import socket
import struct

import grpc
import pytest
from tritonclient.grpc import service_pb2

from dragoman.wire import MAX_MESSAGE_BYTES
from hostile import outcomes
from hostile.http2 import INFER, Connection, headers, message
from hostile.outcomes import REVEALING
from served import Caller, Server, add_bytes, eventually, request

pytestmark = pytest.mark.usefixtures("server_is_unimpressed")

INVALID = grpc.StatusCode.INVALID_ARGUMENT


BAD_TEXTS = [
    ([b""], "the text is empty"),
    ([b" \t\n"], "the text is empty"),
    ([b"\xff\xfe\x00"], "the text is not UTF-8"),
    ([b"bell \x07"], r"control character U\+0007"),
    ([b"x" * 100_001], "100001 bytes; this server takes 100000"),
    ([b"a"] * 257, "257 texts are too many; this server takes 256"),
]
BAD_OPTIONS = [
    (b'{"beam_size": 1000000}', r"more than this server allows \(16\)"),
    (b'{"beam_size": -4}', "between 1 and"),
    (b'{"num_hypotheses": -1}', "num_hypotheses"),
    (b'{"max_length": -1}', "between 1 and"),
    (b'{"min_length": -1}', "min_length"),
    (b'{"top_k": -1}', "top_k"),
    (b'{"temperature": -1.0}', "temperature"),
    (b'{"no_repeat_ngram_size": -1}', "no_repeat_ngram_size"),
    (b'{"prefix": [-1]}', "prefix"),
    (b'{"max_length": 100000000}', "more than the model can generate"),
    (b'{"colour": "red"}', "unknown option 'colour'"),
    (b'{"model": "fr-en"}', "unknown option 'model'"),
    (b"beam_size=4", "not JSON"),
    (b"[1, 2]", "must be a JSON object"),
    (b"\xff", "not UTF-8"),
    (b"{" * 10_000, "not JSON"),
    (b"[" * 16_000, "not JSON"),
    (b" " * 20_000, "20000 bytes"),
    (b'{"seed": 1e999}', "seed"),
    (b'{"timeout_ms": -1}', "timeout_ms=-1"),
    (b'{"prefix": [999999999]}', "outside the model's vocabulary"),
    (b'{"prefix_text": "\\u0000"}', "control character"),
]
MALFORMED = [(texts, b"", complaint) for texts, complaint in BAD_TEXTS]
MALFORMED += [([b"Hello."], options, complaint) for options, complaint in BAD_OPTIONS]


def refused(
    caller: Caller, message: service_pb2.ModelInferRequest, code: grpc.StatusCode = INVALID, complaint: str = ""
) -> None:
    """The answer is that status, with a sentence that gives nothing away and has `complaint` in it."""
    with pytest.raises(grpc.RpcError) as error:
        caller.stub.ModelInfer(message, timeout=600)
    assert error.value.code() is code
    assert error.value.details()
    assert not REVEALING.search(error.value.details())
    assert re.search(complaint, error.value.details())


class TestMalformed:
    @pytest.mark.parametrize("model", ["translate", "encoder"])
    @pytest.mark.parametrize(("texts", "options", "complaint"), MALFORMED)
    def test_is_refused_with_the_reason(
        self, caller: Caller, model: str, texts: list[bytes], options: bytes, complaint: str
    ) -> None:
        refused(caller, request(model, texts, options), complaint=f"^INVALID_REQUEST: .*{complaint}")

    @pytest.mark.parametrize(("texts", "options", "complaint"), MALFORMED)
    def test_is_refused_as_a_stream_too(self, caller: Caller, texts: list[bytes], options: bytes, complaint: str) -> None:
        outcome = outcomes.stream(caller.stub, request("translate_stream", texts, options))
        assert outcome.code == "INVALID_REQUEST"
        assert outcome.is_answer
        assert re.search(complaint, outcome.message)

    def test_a_model_that_is_not_served_is_named(self, caller: Caller) -> None:
        complaint = "there is no model 'fr-en' here; this server has en-de"
        refused(caller, request("translate", ["Hello."], {}, "fr-en"), complaint=f"^INVALID_REQUEST: {complaint}")

    def test_one_text_of_many_is_named(self, caller: Caller) -> None:
        refused(caller, request("translate", [b"good", b"\xc3\x28"], {}), complaint="^INVALID_REQUEST: text 1 is not UTF-8")

    def test_does_not_affect_other_requests(self, caller: Caller) -> None:
        """Everything at once: good requests between all the bad ones, in the same batches."""
        good = [f"Tom has {number} books and is reading one of them." for number in range(2, 12)]
        alone = [caller.translate([text], cache=False).best for text in good]
        together, bad = [], []
        for number, (texts, options, _) in enumerate(MALFORMED):
            together.append(caller.translate_later([good[number % len(good)]], cache=False))
            bad.append(caller.stub.ModelInfer.future(request("translate", texts, options), timeout=600))
        said = [caller.answer(future.result()).best for future in together]
        assert said == [alone[number % len(good)] for number in range(len(MALFORMED))]
        assert [future.exception().code() for future in bad] == [INVALID] * len(MALFORMED)

    def test_no_text_at_all_is_refused(self, caller: Caller) -> None:
        message = service_pb2.ModelInferRequest(model_name="translate")
        message.inputs.add(name="TEXT", datatype="BYTES", shape=[0])
        refused(caller, message)


class TestTensors:
    def test_a_model_that_is_not_there_is_refused(self, caller: Caller) -> None:
        """By Triton itself, before anything of ours; a bundle that is not there is INVALID_ARGUMENT, above."""
        refused(caller, request("no_such_model", ["Hello."], {}), grpc.StatusCode.NOT_FOUND, "unknown model")

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
        refused(caller, message)

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

    def test_an_unknown_input_is_refused(self, caller: Caller) -> None:
        message = request("translate", ["Hello."], {})
        add_bytes(message, "PASSWORD", [b"x"])
        refused(caller, message)

    def test_two_options_are_refused(self, caller: Caller) -> None:
        message = request("translate", ["Hello."], {})
        add_bytes(message, "OPTIONS", [b"{}", b"{}"])
        refused(caller, message)

    def test_a_payload_of_many_megabytes_is_refused(self, caller: Caller) -> None:
        refused(caller, request("translate", [b"x" * (15 << 20)], {}), complaint="bytes; this server takes 100000")

    def test_a_message_longer_than_any_request_ends_its_connection_at_once(self, server: Server, caller: Caller) -> None:
        """Its five first bytes say how long it will be: the rest is not waited for."""
        other = caller.stream("The old man and his dog walked along the river.", cache=False)
        next(other)
        connection = Connection(server.grpc)
        connection.call(headers(INFER), message(b"", length=MAX_MESSAGE_BYTES + 1))
        connection.flush()

        def is_closed() -> bool:
            list(connection.receive(0.1))
            return connection.is_closed

        eventually(is_closed)
        assert list(other)[-1]["final"]

    def test_a_request_without_inputs_is_refused(self, caller: Caller) -> None:
        refused(caller, service_pb2.ModelInferRequest(model_name="translate"))


class TestSlowCallers:
    def test_an_unread_stream_delays_no_other_request(self, server: Server, caller: Caller) -> None:
        lazy = [caller.stream("The old man and his dog walked along the river. " * 20, cache=False) for _ in range(4)]
        for stream in lazy:
            next(stream)
        assert caller.translate(["It is raining."], cache=False).best
        for stream in lazy:
            stream.close()  # type: ignore[attr-defined]

    def test_silent_or_malformed_connections_delay_no_request(self, server: Server, caller: Caller) -> None:
        host, _, port = server.grpc.rpartition(":")
        with contextlib.ExitStack() as open_sockets:
            for number in range(40):
                connected = open_sockets.enter_context(socket.create_connection((host, int(port)), timeout=600))
                connected.sendall(
                    [b"", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(50)][number % 4]
                )
            assert caller.translate(["It is raining."], cache=False).best


class TestSessions:
    @pytest.mark.parametrize("session", [b"en-de-1.guess", b"", b"\xff" * 50])
    def test_a_guessed_name_opens_no_session(self, caller: Caller, session: bytes) -> None:
        with pytest.raises(grpc.RpcError) as error:
            caller.decode(session, {"do": "step", "candidates": 1}, [(0, -1, 0)])
        assert error.value.code() is grpc.StatusCode.NOT_FOUND

    @pytest.mark.parametrize(
        ("command", "step", "complaint"),
        [
            ({"do": "dance"}, [], "one of step, text, close"),
            ({"do": "step"}, [(0, -1, 0)], "candidates"),
            ({"do": "step", "candidates": 10**9}, [(0, -1, 0)], "candidates"),
            ({"do": "step", "candidates": 1}, [], "int32 triples"),
            ({"do": "step", "candidates": 1}, [(7, -1, 0)], ""),
            ({"do": "step", "candidates": 1}, [(0, -1, 2**30)], ""),
            ({"do": "text", "tokens": "abc"}, [], "lists of .* token ids"),
            ({"do": "text", "tokens": [[-1]]}, [], "token ids"),
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
