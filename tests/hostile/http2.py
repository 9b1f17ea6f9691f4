"""gRPC written by hand: calls that cost the caller a few microseconds, and frames that no library would send.

The time of an answer is that at which the kernel had it: a caller who waits for a core is not taken for a slow server.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
INITIAL_WINDOW, WIDEST_WINDOW = 65_535, 2**31 - 1
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_AT_ONCE = 1 << 16


def frame(kind: int, flags: int, stream: int, body: bytes, length: int | None = None) -> bytes:
    """An HTTP/2 frame; `length` may lie."""
    said = len(body) if length is None else length
    return said.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def headers(path: str, authority: str = "localhost", more: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    """The header block of a gRPC call, nothing of it in a dynamic table. Lengths below 127 only, but for `more`."""
    block = b"\x83\x86"  # :method POST, :scheme http
    block += b"\x04" + _string(path.encode()) + b"\x01" + _string(authority.encode())
    block += b"\x0f\x10" + _string(b"application/grpc") + b"\x00" + _string(b"te") + _string(b"trailers")
    return block + b"".join(b"\x00" + _string(name) + _string(value) for name, value in more)


def message(body: bytes, *, compressed: bool = False, length: int | None = None) -> bytes:
    """A gRPC message; `length` may lie."""
    return bytes([compressed]) + (len(body) if length is None else length).to_bytes(4, "big") + body


def _string(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    length, rest = b"\x7f", len(text) - 127
    while rest >= 128:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return length + bytes([rest]) + text


@dataclass(slots=True)
class Call:
    """One call: the clock is that of `time.time`."""

    sent_s: float
    ended_s: float = 0.0
    data: bytes = b""
    trailers: bytes = b""
    """Header blocks as they came: messages of errors are legible in them."""
    is_reset: bool = False

    @property
    def seconds(self) -> float:
        return self.ended_s - self.sent_s


@dataclass
class Connection:
    """One connection, and the calls that have no answer yet. `reads`: False for one that gives the server no window."""

    address: str
    reads: bool = True
    open: dict[int, Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        window = WIDEST_WINDOW if self.reads else 0
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
        if self.reads:
            self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WIDEST_WINDOW - INITIAL_WINDOW)))
        self.socket.setblocking(False)
        self._stream, self._window = -1, INITIAL_WINDOW
        self._waiting: deque[tuple[int, bytes, int]] = deque()  # calls for which the server has given no window
        self._unsent, self._received = bytearray(), bytearray()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self.socket.close()

    def call(self, head: bytes, body: bytes) -> int:
        """Begin a call of one message; `flush` sends it. The number of its stream."""
        self._stream += 2
        self.open[self._stream] = Call(time.time())
        begin, end = frame(HEADERS, END_HEADERS, self._stream, head), frame(DATA, END_STREAM, self._stream, body)
        self._waiting.append((self._stream, begin + end, len(body)))
        return self._stream

    def flush(self) -> None:
        """Send what the server has given room for."""
        while self._waiting and self._waiting[0][2] <= self._window:
            stream, written, counted = self._waiting.popleft()
            self._window -= counted  # headers do not count: the server would never give them back
            self.open[stream].sent_s = time.time()
            self._unsent += written
        self.write(b"")

    def write(self, raw: bytes) -> None:
        """These bytes as they are, behind what is not sent yet."""
        self._unsent += raw
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def receive(self, timeout_s: float) -> Iterator[Call]:
        """Calls that have ended; waits for the first bytes no longer than `timeout_s`."""
        if self._is_closed or not select.select([self.socket], [], [], timeout_s)[0]:
            return
        try:
            raw, ancillary, _, _ = self.socket.recvmsg(_AT_ONCE, 64)
        except BlockingIOError:
            return
        except OSError:
            raw, ancillary = b"", []
        if not raw:
            self.close()
            return
        at_s = time.time()
        if ancillary:
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            at_s = seconds + 1e-9 * nanoseconds
        self._received += raw
        yield from self._ended(at_s)

    def _ended(self, at_s: float) -> Iterator[Call]:
        start, received = 0, bytes(self._received)
        while start + 9 <= len(received):
            end = start + 9 + int.from_bytes(received[start : start + 3], "big")
            if end > len(received):
                break
            kind, flags = received[start + 3], received[start + 4]
            stream = int.from_bytes(received[start + 5 : start + 9], "big") & WIDEST_WINDOW
            self._take(kind, flags, stream, received[start + 9 : end])
            start = end
            is_last = kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)
            if is_last and (ended := self.open.pop(stream, None)):
                ended.ended_s, ended.is_reset = at_s, kind == RST_STREAM
                yield ended
        del self._received[:start]

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        call = self.open.get(stream)
        match kind:
            case 0 if call:
                call.data += body
            case 1 | 9 if call:
                call.trailers += body
            case 4 if not flags & ACK:
                self.write(frame(SETTINGS, ACK, 0, b""))
            case 6 if not flags & ACK:
                self.write(frame(PING, ACK, 0, body))
            case 8 if stream == 0:
                self._window += int.from_bytes(body, "big") & WIDEST_WINDOW
            case _:
                pass
