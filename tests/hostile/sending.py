"""How what is expensive is sent to a server, and what becomes of it."""

from __future__ import annotations

import json
import time

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from hostile.http2 import DATA, END_HEADERS, HEADERS, INFER, Connection, frame, headers, message
from hostile.outcomes import LOST, Outcome, failed, stream, unary
from hostile.poisons import command
from served import Caller, add_bytes, request

LONGEST_MS = 1_500
METHOD = "/inference.GRPCInferenceService/ModelInfer"

ORDINARY = (
    "The old man and his dog walked along the river until they came to a small house at the edge of the forest. "
    "Nobody had lived there for many years, and the door was open. "
)


def send_targets(pairs: list[tuple[str, str]], caller: Caller) -> Outcome:
    """Texts and their TARGET."""
    message = request("translate", [text for text, _ in pairs], {"timeout_ms": LONGEST_MS})
    add_bytes(message, "TARGET", [target.encode() for _, target in pairs])
    return unary(caller.stub, message, timeout_s=90)


def send_texts(texts: list[str], caller: Caller, **options: object) -> Outcome:
    asked = {"cache": False, "timeout_ms": LONGEST_MS, **options}
    return unary(caller.stub, request("translate", texts, asked), timeout_s=90)


def send_stream(text: str, caller: Caller, **options: object) -> Outcome:
    asked = {"cache": False, "timeout_ms": LONGEST_MS, **options}
    return stream(caller.stub, request("translate_stream", [text], asked), timeout_s=90, metadata=())


def send_to_encoder(texts: list[str], caller: Caller, **options: object) -> Outcome:
    began_s = time.monotonic()
    try:
        session, _ = caller.encode(texts, **options)
        caller.decode(session, {"do": "close"})
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    return Outcome("ok", seconds=time.monotonic() - began_s)


def send_command(item: str, count: int, caller: Caller) -> Outcome:
    session, _ = caller.encode(["Hello."])
    raw = '{"do": "text", "tokens": [' + ",".join([item] * count) + "]}"
    outcome = unary(caller.stub, command(raw, session), timeout_s=90)
    caller.decode(session, {"do": "close"})
    return outcome


def drive_session(rows: int, steps: int, how: str, caller: Caller) -> Outcome:
    """A client-driven session with as many rows and candidates as there may be; `changing` widths feed history again."""
    began_s = time.monotonic()
    session = None
    try:
        session, info = caller.encode([f"{ORDINARY} {n}" for n in range(1 if how == "changing" else rows)], split="none")
        candidates = info["choices"] if how == "wide" else 1
        before = 0
        for step in range(steps):
            width = rows if how == "wide" or step % 2 else 1
            asked = _step(how, width, before, info["tokens"]["decoder_start"] if step == 0 else 9)
            caller.decode(session, {"do": "step", "candidates": candidates}, asked)
            before = width
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    finally:
        if session is not None:
            caller.decode(session, {"do": "close"})
    return Outcome("ok", seconds=time.monotonic() - began_s)


def _step(how: str, width: int, before: int, token: int) -> list[tuple[int, int, int]]:
    """Rows of one step: one for each source, or all of one source."""
    if how == "wide":
        return [(row, row if before else -1, token) for row in range(width)]
    return [(0, min(row, before - 1) if before else -1, token) for row in range(width)]


def send_empty_texts(count: int, caller: Caller) -> Outcome:
    """TEXT with so many elements of no bytes, as `bytes_contents`: two bytes each on the wire."""
    about = service_pb2.ModelInferRequest.InferInputTensor(name="TEXT", datatype="BYTES", shape=[count])
    tensor = about.SerializeToString() + _field(5, b"\x42\x00" * count)
    head = service_pb2.ModelInferRequest(model_name="translate").SerializeToString()
    return _send_raw(caller, head + _field(5, tensor))


def send_raw_texts(count: int, caller: Caller) -> Outcome:
    """The same as `raw_input_contents`: four bytes each."""
    message = service_pb2.ModelInferRequest(model_name="translate")
    message.inputs.add(name="TEXT", datatype="BYTES", shape=[count])
    message.raw_input_contents.append(np.zeros(count, "<u4").tobytes())
    return _send_raw(caller, message.SerializeToString())


def send_large_options(count: int, caller: Caller) -> Outcome:
    return unary(caller.stub, request("translate", ["Hello."], json.dumps({"x": "y" * count}).encode()), timeout_s=90)


def send_large_text(count: int, caller: Caller) -> Outcome:
    return unary(caller.stub, request("translate", [b"x" * count], {}), timeout_s=90)


def send_long_message(count: int, caller: Caller) -> Outcome:
    """One that announces so many bytes, and as many of them as the server takes: none are made before."""
    began_s, connection = time.monotonic(), Connection(caller.address)
    connection.write(frame(HEADERS, END_HEADERS, 1, headers(INFER)) + frame(DATA, 0, 1, message(b"", length=count)))
    for _ in range(count >> 14):
        connection.write(frame(DATA, 0, 1, bytes(1 << 14)))
        list(connection.receive(0.0))
        if connection.is_closed:
            return Outcome(LOST, seconds=time.monotonic() - began_s)
    connection.close()
    return Outcome("ok", seconds=time.monotonic() - began_s)


def _send_raw(caller: Caller, message: bytes) -> Outcome:
    began_s = time.monotonic()
    try:
        caller.channel.unary_unary(METHOD)(message, timeout=90)
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    return Outcome("ok", seconds=time.monotonic() - began_s)


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field."""
    length, encoded = len(value), bytearray([number << 3 | 2])
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + value
