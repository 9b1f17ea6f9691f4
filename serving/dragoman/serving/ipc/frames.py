"""A message between two processes of a server: a kind, a request number and parts of bytes.

u32 bytes that follow · u8 kind · u64 request · u32 parts · (u32 length · bytes) for each part

Nothing is pickled and nothing is evaluated: a part is text, a JSON object or little-endian numbers.
"""

from __future__ import annotations

import json
import math
import struct
from enum import IntEnum
from typing import Any, NamedTuple

from dragoman.errors import ServeError

__all__ = [
    "MAX_FRAME_BYTES",
    "NO_DETAILS",
    "Frame",
    "FrameReader",
    "Kind",
    "json_frame",
    "read_arrival",
    "targets_behind",
]

MAX_FRAME_BYTES = 256 << 20
NO_DETAILS = b"-"
"""An arrival is a double, seconds of the monotonic clock; followed by this mark if the caller does not want DETAILS."""

_HEADER = struct.Struct("<BQI")
_LENGTH = struct.Struct("<I")
_ARRIVAL = struct.Struct("<d")
_PARTS_BEFORE_TEXTS = 2


class Kind(IntEnum):
    """What a frame is about, and its parts."""

    # the Triton backend to an engine (HELLO: to the supervisor, too)
    HELLO = 1  # [who]: the first frame on every connection
    TRANSLATE = 2  # [arrival, options, text, …]
    STREAM = 3  # [arrival, options, text]
    ENCODE = 4  # [arrival, options, text, …]
    DECODE = 5  # [arrival, session, command, step]
    CANCEL = 6  # []
    SCORE = 7  # [arrival, options, text, …, as many targets]
    REFUSED = 8  # [count]: requests that the backend refused by itself, because the engine had no room
    # an engine to the Triton backend
    ANSWER = 11  # the last frame of a request; its parts depend on the request's kind
    CHUNK = 12  # [text, details]
    ERROR = 13  # [error code, text as `wire.ErrorCode` spells it]: the last frame of a request, too
    METRICS = 14  # [name, label, amount, …]
    ROOM = 15  # [requests read, places left, milliseconds to wait]: QueueRoom
    # the supervisor to an engine, and back
    SETTINGS = 19  # [JSON]: the first frame to a new engine
    PING = 20
    PONG = 21  # [JSON]
    DRAIN = 22
    READY = 23  # [JSON]
    FAILED = 24  # [message]
    # the supervisor to the Triton backend
    SERIES = 29  # [name, kind, help, label, …]: what may come in METRICS
    ROUTES = 30  # [state, limits, restarts, STATUS, then of each bundle its name and its sockets]: RoutingTable


_KINDS = {kind.value: kind for kind in Kind}


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    request: int = 0
    parts: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """The byte strings that `encode` joins, so that an answer of megabytes is sent without another copy."""
        parts = self.parts
        size = _HEADER.size + _LENGTH.size * len(parts) + sum(map(len, parts))
        if size > MAX_FRAME_BYTES:
            raise ServeError(f"a message of {size} bytes between our processes is more than {MAX_FRAME_BYTES}")
        pieces = [_LENGTH.pack(size), _HEADER.pack(self.kind, self.request, len(parts))]
        for part in parts:
            pieces += (_LENGTH.pack(len(part)), part)
        return pieces

    def json(self) -> Any:  # noqa: ANN401 - what JSON holds is for the caller to say
        """The first part, parsed."""
        return json.loads(self.parts[0])


def json_frame(kind: Kind, value: object, request: int = 0) -> Frame:
    """A frame whose only part is a JSON object."""
    return Frame(kind, request, (json.dumps(value, ensure_ascii=False).encode(),))


def read_arrival(frame: Frame) -> tuple[float, bool]:
    """When a request arrived at the server, in seconds of the monotonic clock, and whether its caller wants DETAILS."""
    size = _ARRIVAL.size
    if len(frame.parts) < _PARTS_BEFORE_TEXTS or len(frame.parts[0]) not in (size, size + len(NO_DETAILS)):
        raise ServeError(f"a {frame.kind.name} frame is malformed")
    (arrived_s,) = _ARRIVAL.unpack_from(frame.parts[0])
    if not math.isfinite(arrived_s):
        raise ServeError(f"a {frame.kind.name} frame arrived at {arrived_s}")
    return arrived_s, not frame.parts[0].endswith(NO_DETAILS, size)


def targets_behind(strings: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The texts of a SCORE frame and the targets behind them; ServeError when there are not as many."""
    texts, odd = divmod(len(strings), 2)
    if odd:
        raise ServeError("a SCORE frame has another number of targets than of texts")
    return strings[:texts], strings[texts:]


class FrameReader:
    """Splits a byte stream into frames, wherever the stream was cut on the way."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        buffer = self._buffer
        buffer += data
        frames, start = [], 0
        while len(buffer) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if not _HEADER.size <= size <= MAX_FRAME_BYTES:
                raise ServeError(f"a message between our processes claims {size} bytes; the stream is broken")
            end = start + _LENGTH.size + size
            if len(buffer) < end:
                break
            frames.append(_decode(bytes(buffer[start + _LENGTH.size : end])))
            start = end
        del buffer[:start]
        return frames


def _decode(body: bytes) -> Frame:
    try:
        kind, request, count = _HEADER.unpack_from(body)
        parts, at = [], _HEADER.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
            if at + length > len(body):
                raise ServeError("a message between our processes ends inside a part; the stream is broken")
            parts.append(body[at : at + length])
            at += length
        return Frame(_KINDS[kind], request, tuple(parts))
    except (struct.error, KeyError) as error:
        raise ServeError(f"a message between our processes can't be read: {error}") from error
