"""Connections that no gRPC library would make: very many calls, calls without an end, answers that nobody reads, floods."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import psutil

from hostile.deaths import Deaths
from hostile.http2 import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    INFER,
    PING,
    RST_STREAM,
    SETTINGS,
    STREAM_INFER,
    Connection,
    frame,
    headers,
    message,
)
from hostile.report import Row, judged
from served import Server, request

ANSWERED_S = 5.0
"""A neighbour's call beside each of them takes no longer, however busy the machine."""
_WRITES = 200
"""Frames between two looks at what has come back."""


def _open(connection: Connection, path: str, count: int) -> None:
    head = headers(path)
    _flood(connection, count, lambda number: frame(HEADERS, END_HEADERS, 2 * number + 1, head))


def _reset(connection: Connection, count: int) -> None:
    head, cancel = headers(INFER), struct.pack(">I", 8)

    def both(number: int) -> bytes:
        stream = 2 * number + 1
        return frame(HEADERS, END_HEADERS, stream, head) + frame(RST_STREAM, 0, stream, cancel)

    _flood(connection, count, both)


def _unread(connection: Connection, count: int) -> None:
    head, body = headers(INFER), message(request("translate", ["Hello."], {}).SerializeToString())
    for number in range(count):
        connection.call(head, body)
        if number % 20 == 0:
            connection.flush()
            _look(connection)


def _endless_headers(connection: Connection, count: int) -> None:
    connection.write(frame(HEADERS, 0, 1, headers(INFER)))
    _flood(connection, count, lambda number: frame(CONTINUATION, 0, 1, b"".join(_header(number, at) for at in range(50))))


def _header(number: int, at: int) -> bytes:
    """One that goes into the table of headers, under a name that was not there."""
    return b"\x40\x0a" + b"x%09d" % (number * 50 + at) + b"\x01a"


def _long_header(connection: Connection, count: int) -> None:
    block = headers(INFER, more=((b"x-long", b"y" * count),))
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    kinds = [HEADERS, *[CONTINUATION] * (len(pieces) - 1)]
    last = len(pieces) - 1
    for number, (kind, piece) in enumerate(zip(kinds, pieces, strict=True)):
        connection.write(frame(kind, END_HEADERS if number == last else 0, 1, piece))
        _look(connection)


def _flood(connection: Connection, count: int, written: Callable[[int], bytes]) -> None:
    for number in range(count):
        connection.write(written(number))
        if number % _WRITES == 0:
            _look(connection)
        if connection.is_closed:
            return


def _look(connection: Connection) -> None:
    for _ in connection.receive(0.002):
        pass


ATTACKS: dict[str, tuple[Callable[[Connection, int], None], int, bool]] = {
    "streams that never send": (lambda connection, count: _open(connection, STREAM_INFER, count), 5_000, True),
    "calls without a message": (lambda connection, count: _open(connection, INFER, count), 5_000, True),
    "answers that nobody reads": (_unread, 3_000, False),
    "calls that are reset at once": (_reset, 20_000, True),
    "pings": (lambda connection, count: _flood(connection, count, lambda _: frame(PING, 0, 0, bytes(8))), 100_000, True),
    "settings": (
        lambda connection, count: _flood(
            connection, count, lambda number: frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1000 + number % 2))
        ),
        100_000,
        True,
    ),
    "headers without an end": (_endless_headers, 2_000, True),
    "a header of 12 MB": (_long_header, 12_000_000, True),
}
"""What is done, how often, and whether the answers are read."""


def hung_on(server: Server, deaths: Deaths) -> list[Row]:
    """A row for each: the memory that it took of Triton, and how long a neighbour was waited for beside it."""
    return [_attacked(server, deaths, name, *attack) for name, attack in ATTACKS.items()]


def _attacked(
    server: Server, deaths: Deaths, name: str, attack: Callable[[Connection, int], None], count: int, reads: bool
) -> Row:
    deaths.whole()
    before, wrong = deaths.counted(), list[str]()
    triton = psutil.Process(server.children()["triton"][0])
    held = triton.memory_info().rss
    connection, caller = Connection(server.grpc, reads=reads), server.caller()
    attack(connection, count)
    began_s = time.monotonic()
    caller.translate(["Are you there?"], timeout_s=60, cache=False)
    answered_s = time.monotonic() - began_s
    if answered_s > ANSWERED_S:
        wrong.append(f"a neighbour's call took {answered_s:.1f} s")
    grown = triton.memory_info().rss - held if triton.is_running() else 0
    connection.close()
    caller.close()
    deaths.whole()
    figures = {"Triton MiB": grown >> 20, "neighbour ms": round(1e3 * answered_s)}
    return judged(name, count, deaths.counted() - before, wrong, figures)
