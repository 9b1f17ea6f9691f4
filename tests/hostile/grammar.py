"""Random requests that are almost right: each begins as a good one of some model, and a few things of it are spoilt."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable

from tritonclient.grpc import service_pb2

from dragoman.wire import MODELS, TritonModel
from hostile.poisons import ANYWHERE, COMMANDS, IMPOSSIBLE, OPTIONS, SCHEMA, possible

Request = service_pb2.ModelInferRequest
DATATYPES = (
    "BYTES",
    "BOOL",
    "UINT8",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BF16",
    "",
    "TEXT",
    "bytes",
)
SIZES = (0, 1, 1, 1, 2, 3, 7, 255, 256, 257, 2**31 - 1, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, -1, -(2**63))
TEXTS = (
    b"Hello.",
    b"",
    b" ",
    b"\xff\xfe",
    b"\x00",
    b"a\x00b",
    "\u202e\u2066text".encode(),
    "\ufeff".encode(),
    "e\u0301".encode() * 50,
    "\U0010ffff\ue000\ufdd0".encode(),
    "👩‍👩‍👧‍👦".encode() * 20,
    b"\xed\xa0\x80",
    b"word " * 200,
    b"." * 500,
    b">>deu<< Hello.",
    b"<pad></s><unk>",
    "▁▁▁".encode(),
    b"A" * 3000,
    b"<p>Hello <b>old</i> <!-- <a href='x",
    b"<b>" * 300 + b"word" + b"</i>" * 300,
    b"<script>" + b"&amp;<" * 200,
    b"{a} %s https://x.y/`" * 50,
    b"> - # *a* _b_ [c](d" * 40,
    b"| a | b |\n|---|---|\n| Hello. | `x` |\n\n```\ncode\n```\n# WHERE IS IT?\n",
    b"<xliff version='1.2'><source>Hello <g id='1'>there</g>.</source><target>x</target></xliff>",
    b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'>]><a b='&b;'>Hello &b;.<![CDATA[x]]></a>",
    b"<img alt='An old man'> <span translate='no'>He</span> said: <code>{x}</code> {y} %s",
)
VALUES = (
    *ANYWHERE.values(),
    *(value for values in IMPOSSIBLE.values() for value in values.values()),
    *(value for option in SCHEMA for value in possible(option)),
)
SANE = 0.4
"""How often every option has a value of its own type, and is there once."""
PARAMETERS = (
    *("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data", "binary_data_size"),
    *("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset", "triton_enable_empty_final_response"),
    *("classification", "headers", "x", ""),
)


class Grammar:
    """Requests from a seed: the same seed, the same requests."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._sessions: list[bytes] = [b"en-de-1.x", b"", b"\xff"]

    def remember(self, session: bytes) -> None:
        """A real session, which later requests may use."""
        self._sessions = [*self._sessions[-8:], session]

    def request(self) -> Request:
        """One request; about one in eight is good."""
        dice = self._dice
        model = dice.choice(MODELS)
        message = self._good(model)
        spoil: tuple[Callable[[Request], None], ...] = (
            *(self._spoil_shape, self._spoil_type, self._spoil_contents, self._leave_out, self._repeat, self._add_input),
            *(self._add_parameters, self._ask_outputs, self._name_version, self._mix_raw),
        )
        for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 5))):
            dice.choice(spoil)(message)
        return message

    def options(self) -> bytes:
        """A JSON object of options, some of them sane, in JSON that is not always whole."""
        dice = self._dice
        is_sane = dice.random() < SANE
        names = (
            dice.sample(OPTIONS, dice.randint(0, 4)) if is_sane else dice.choices((*OPTIONS, "x", ""), k=dice.randint(0, 4))
        )
        pairs = [f"{json.dumps(name)}: {dice.choice(possible(name) if is_sane else VALUES)}" for name in names]
        text = ("{" + ", ".join(pairs) + "}").encode()
        if dice.random() < 0.1:
            at = dice.randrange(len(text))
            text = text[:at] + bytes([dice.randrange(256)]) + text[at + dice.choice((0, 1)) :]
        return text[:60_000]

    def _good(self, model: TritonModel) -> Request:
        dice = self._dice
        message = Request(model_name=model.name, id=dice.choice(("", "1", "x" * 1000, "é")))
        for tensor in model.inputs:
            if tensor.optional and dice.random() < 0.4:
                continue
            values = self._values(tensor.name)
            self._put(message, tensor.name, values, raw=False)
        if dice.random() < 0.3:
            self._as_raw(message)
        return message

    def _values(self, name: str) -> list[bytes]:
        dice = self._dice
        match name:
            case "TEXT":
                return [dice.choice(TEXTS) for _ in range(dice.choice((1, 1, 1, 2, 5)))]
            case "TARGET":
                return [dice.choice(TEXTS) for _ in range(dice.choice((0, 1, 1, 1, 2, 5)))]
            case "OPTIONS":
                return [self.options() if dice.random() < 0.7 else b'{"beam_size": 2}']
            case "MODEL":
                return [dice.choice((b"en-de", b"en-de", b"", b"x", b"\xff", b"../x"))]
            case "SESSION":
                return [dice.choice(self._sessions)]
            case "COMMAND":
                good = ('{"do": "step", "candidates": 2}', '{"do": "text", "tokens": [[4, 5], []]}', '{"do": "close"}')
                return [dice.choice((*good, *COMMANDS.values())).encode()]
            case "STEP":
                rows = [dice.choice((0, 0, 1, -1, 7, 2**31 - 1, -(2**31))) for _ in range(3 * dice.choice((0, 1, 1, 2, 64)))]
                return [struct.pack(f"<{len(rows)}i", *rows) + dice.choice((b"", b"", b"\x01"))]
        return [dice.choice((b"", b"{}", b"status", b"\xff" * 100))]

    @staticmethod
    def _put(message: Request, name: str, values: list[bytes], *, raw: bool) -> None:
        tensor = message.inputs.add(name=name, datatype="BYTES", shape=[len(values)])
        if raw:
            message.raw_input_contents.append(b"".join(struct.pack("<I", len(value)) + value for value in values))
        else:
            tensor.contents.bytes_contents.extend(values)

    def _as_raw(self, message: Request) -> None:
        """All inputs as raw contents."""
        for tensor in message.inputs:
            values = list(tensor.contents.bytes_contents)
            tensor.ClearField("contents")
            message.raw_input_contents.append(b"".join(struct.pack("<I", len(value)) + value for value in values))

    def _any(self, message: Request) -> Request.InferInputTensor | None:
        return self._dice.choice(message.inputs) if message.inputs else None

    def _spoil_shape(self, message: Request) -> None:
        if (tensor := self._any(message)) is not None:
            tensor.shape[:] = [self._dice.choice(SIZES) for _ in range(self._dice.choice((0, 1, 1, 2, 3, 40)))]

    def _spoil_type(self, message: Request) -> None:
        if (tensor := self._any(message)) is not None:
            tensor.datatype = self._dice.choice(DATATYPES)

    def _spoil_contents(self, message: Request) -> None:
        dice = self._dice
        if message.raw_input_contents and dice.random() < 0.8:
            at = dice.randrange(len(message.raw_input_contents))
            raw = bytearray(message.raw_input_contents[at])
            for _ in range(dice.randint(1, 4)):
                if raw:
                    raw[dice.randrange(len(raw))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
            message.raw_input_contents[at] = bytes(raw[: dice.randint(0, len(raw))]) if dice.random() < 0.5 else bytes(raw)
        elif (tensor := self._any(message)) is not None:
            fields = ("int_contents", "fp32_contents", "bool_contents", "uint64_contents", "fp64_contents", "int64_contents")
            getattr(tensor.contents, dice.choice(fields)).extend([1] * dice.randint(0, 3))

    def _leave_out(self, message: Request) -> None:
        if message.inputs:
            del message.inputs[self._dice.randrange(len(message.inputs))]

    def _repeat(self, message: Request) -> None:
        if (tensor := self._any(message)) is not None:
            message.inputs.add().CopyFrom(tensor)

    def _add_input(self, message: Request) -> None:
        name = self._dice.choice(
            ("TEXT", "TARGET", "OPTIONS", "MODEL", "SESSION", "COMMAND", "STEP", "QUERY", "X", "", "x" * 5000, "START")
        )
        self._put(message, name, [self._dice.choice(TEXTS)], raw=False)

    def _add_parameters(self, message: Request) -> None:
        for _ in range(self._dice.randint(1, 3)):
            self._set(message.parameters[self._dice.choice(PARAMETERS)])

    def _ask_outputs(self, message: Request) -> None:
        names = [tensor.name for model in MODELS for tensor in model.outputs] + ["X", ""]
        for _ in range(self._dice.randint(1, 4)):
            output = message.outputs.add(name=self._dice.choice(names))
            if self._dice.random() < 0.4:
                self._set(output.parameters[self._dice.choice(PARAMETERS)])

    def _name_version(self, message: Request) -> None:
        message.model_version = self._dice.choice(("1", "2", "-1", "x", "9" * 400, "\u0000"))
        if self._dice.random() < 0.3:
            message.model_name = self._dice.choice(("", "x", "translate\u0000", "../translate", "x" * 5000))

    def _mix_raw(self, message: Request) -> None:
        message.raw_input_contents.append(self._dice.choice((b"", b"\x01\x00\x00\x00a", b"\xff" * 12)))

    def _set(self, parameter: service_pb2.InferParameter) -> None:
        dice = self._dice
        match dice.randrange(5):
            case 0:
                parameter.bool_param = dice.random() < 0.5
            case 1:
                parameter.int64_param = dice.choice((0, 1, -1, 2**31, 2**63 - 1))
            case 2:
                parameter.string_param = dice.choice(("", "x", "true", "\u0000", "x" * 3000))
            case 3:
                parameter.double_param = dice.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
            case 4:
                parameter.uint64_param = dice.choice((0, 1, 2**64 - 1))
