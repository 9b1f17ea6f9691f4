"""Triton's protobuf messages: BYTES tensors in, typed arrays out. Shared by both translators."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from dragoman.errors import InvalidRequest, ServerError
from dragoman.wire import MAX_MESSAGE_BYTES, WIRE_VERSION, TritonModel

__all__ = ["Message", "Reply", "foreign_answer", "infer_request"]

Message = Any
"""A protobuf message of Triton's service; the generated classes have no types."""

_LENGTH = struct.Struct("<I")
_DTYPES = {"FP32": np.dtype("<f4"), "INT32": np.dtype("<i4"), "BOOL": np.dtype("?")}


def infer_request(model: TritonModel, inputs: Mapping[str, Sequence[bytes]], request_id: str = "") -> Message:
    """A ModelInferRequest; every input is a list of byte strings, as wire.py promises.

    InvalidRequest when it is so long that a server would end the connection instead of answering.
    """
    request = service_pb2.ModelInferRequest(model_name=model.name, id=request_id)
    for name, elements in inputs.items():
        request.inputs.add(name=name, datatype="BYTES", shape=(len(elements),))
        request.raw_input_contents.append(b"".join([_LENGTH.pack(len(element)) + element for element in elements]))
    if (size_bytes := request.ByteSize()) > MAX_MESSAGE_BYTES:
        raise InvalidRequest(f"the request has {size_bytes} bytes; servers take {MAX_MESSAGE_BYTES}: send several requests")
    return request


class Reply:
    """The outputs of a ModelInferResponse by name; a missing or malformed one is a ServerError."""

    __slots__ = ("_outputs", "_raw")

    def __init__(self, response: Message) -> None:
        self._outputs = {output.name: output for output in response.outputs}
        self._raw = dict(zip(self._outputs, response.raw_output_contents, strict=False))

    def has(self, name: str) -> bool:
        """Whether there is such an output, whatever is in it."""
        return name in self._raw

    def array(self, name: str) -> NDArray[Any]:
        """A numeric output in its shape."""
        output, raw = self._output(name)
        try:
            return np.frombuffer(raw, _DTYPES[output.datatype]).reshape(tuple(output.shape))
        except (KeyError, ValueError):
            raise foreign_answer(f"its {name} does not match its type and shape") from None

    def strings(self, name: str) -> list[str]:
        """A BYTES output, flat, as text."""
        _, raw = self._output(name)
        found, offset, end = [], 0, len(raw)
        try:
            while offset < end:
                (size,) = _LENGTH.unpack_from(raw, offset)
                offset += _LENGTH.size + size
                if offset > end:
                    raise foreign_answer(f"its {name} is cut off")
                found.append(raw[offset - size : offset].decode())
        except (struct.error, UnicodeDecodeError):
            raise foreign_answer(f"its {name} is not text") from None
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an output."""
        return tuple(self._output(name)[0].shape)

    def about(self, name: str) -> dict[str, Any]:
        """DETAILS, MODEL_INFO or STATUS: the JSON object that names the wire version of the server.

        Read it before anything else: what the other outputs of another version mean is not known.
        """
        about = self._json(name)
        if (spoken := about.get("wire_version")) != WIRE_VERSION:
            raise foreign_answer(f"its {name} is of version {spoken}" if spoken else f"its {name} names no version")
        return about

    def _json(self, name: str) -> dict[str, Any]:
        texts = self.strings(name)
        try:
            value = json.loads(texts[0])
        except (IndexError, ValueError):
            raise foreign_answer(f"its {name} is not JSON") from None
        if not isinstance(value, dict):
            raise foreign_answer(f"its {name} is not a JSON object")
        return value

    def _output(self, name: str) -> tuple[Any, bytes]:
        if name not in self._raw:
            raise foreign_answer(f"it has no {name}")
        return self._outputs[name], self._raw[name]


def foreign_answer(what: str) -> ServerError:
    """The one error for an answer that this client can't read, whatever shows it."""
    return ServerError(
        f"the server's answer is not of wire version {WIRE_VERSION}: {what}; "
        "use a client and a server of the same dragoman release"
    )
