"""How long the messages of a gRPC connection may be, followed in whatever pieces the bytes come."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native import build

from compiled import can_compile, shared_library
from hostile.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INFER,
    PADDED,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    headers,
    message,
)

pytestmark = can_compile

MOST = 1000
MOST_PARTIALS = 4096
CODE = """
#include "{sources}/message_limit.cpp"
static dragoman::MessageLimit limit;
extern "C" void begin(unsigned most_bytes) {{ limit.begin(most_bytes); }}
extern "C" bool feed(const unsigned char* bytes, unsigned long count) {{ return limit.feed(bytes, count); }}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("limit") / "limit.so"
    loaded = ctypes.CDLL(str(shared_library(output, CODE.format(sources=Path(build.BACKEND)))))
    loaded.feed.argtypes, loaded.feed.restype = [ctypes.c_char_p, ctypes.c_ulong], ctypes.c_bool
    return loaded


def passes(library: ctypes.CDLL, *pieces: bytes) -> bool:
    """Whether a connection that sends these pieces is let through to its end."""
    library.begin(MOST)
    fed = [library.feed(piece, len(piece)) for piece in pieces]  # also after the first refusal
    return all(fed)


def connection(*frames: bytes) -> bytes:
    return PREFACE + frame(SETTINGS, 0, 0, b"") + b"".join(frames)


def opened(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, headers(INFER))


def cut(raw: bytes, size: int) -> Iterator[bytes]:
    return (raw[at : at + size] for at in range(0, len(raw), size))


@pytest.mark.parametrize(("length", "expected"), [(0, True), (MOST, True), (MOST + 1, False), (2**32 - 1, False)])
def test_a_message_is_refused_by_the_length_that_it_announces(library: ctypes.CDLL, length: int, expected: bool) -> None:
    assert passes(library, connection(opened(1), frame(DATA, 0, 1, message(b"", length=length)))) is expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_pieces_in_which_it_comes_change_nothing(library: ctypes.CDLL, size: int) -> None:
    raw = connection(opened(1), *(frame(DATA, 0, 1, piece) for piece in cut(message(b"x" * 40) * 3, 6)))
    assert passes(library, *cut(raw, size))
    assert not passes(library, *cut(raw + frame(DATA, 0, 1, message(b"", length=MOST + 1)), size))


def test_messages_of_several_streams_are_told_apart(library: ctypes.CDLL) -> None:
    first, second = (message(bytes([255]) * 300) for _ in range(2))
    pieces = [
        frame(DATA, 0, stream, part)
        for parts in zip(cut(first, 7), cut(second, 7), strict=True)
        for stream, part in zip((1, 3), parts, strict=True)
    ]
    assert passes(library, connection(opened(1), opened(3), *pieces))
    third = frame(DATA, 0, 3, message(b"", length=MOST + 1))
    assert not passes(library, connection(opened(1), opened(3), frame(DATA, 0, 1, first[:50]), third))


def test_padding_is_no_part_of_a_message(library: ctypes.CDLL) -> None:
    def padded(body: bytes, padding: int) -> bytes:
        return frame(DATA, PADDED, 1, bytes([padding]) + body + b"\xff" * padding)

    raw = message(b"x" * 20)
    assert passes(library, connection(opened(1), padded(raw[:3], 9), padded(raw[3:], 0), padded(b"", 30), padded(raw, 200)))
    assert not passes(library, connection(opened(1), padded(b"\0\0", 9), padded(b"\0", 5), padded(b"\xff\xff", 5)))


def test_a_stream_that_ends_leaves_nothing_to_the_next_of_its_number(library: ctypes.CDLL) -> None:
    half = message(b"x" * 40)[:20]
    for end in (frame(RST_STREAM, 0, 1, b"\0" * 4), frame(DATA, END_STREAM, 1, b"")):
        assert passes(library, connection(opened(1), frame(DATA, 0, 1, half), end, frame(DATA, 0, 1, message(b"y"))))


def test_what_is_not_http2_is_not_looked_at(library: ctypes.CDLL) -> None:
    assert passes(library, b"\x16\x03\x01" + message(b"", length=2**32 - 1) * 10)


def test_the_number_of_unfinished_messages_is_bounded(library: ctypes.CDLL) -> None:
    begun = [opened(2 * n + 1) + frame(DATA, 0, 2 * n + 1, b"\0") for n in range(MOST_PARTIALS + 1)]
    assert passes(library, connection(*begun[:-1]))
    assert not passes(library, connection(*begun))


def test_a_refused_connection_stays_refused_and_the_next_is_not(library: ctypes.CDLL) -> None:
    refused = connection(opened(1), frame(DATA, 0, 1, message(b"", length=MOST + 1)))
    assert not passes(library, refused, frame(DATA, 0, 3, message(b"y")))
    assert passes(library, connection(opened(1), frame(DATA, 0, 1, message(b"y"))))


@given(
    lengths=st.lists(st.integers(0, 60) | st.sampled_from([MOST - 1, MOST, MOST + 1]), max_size=6),
    frame_size=st.integers(1, 40),
    piece_size=st.integers(1, 50),
    noise=st.binary(max_size=20),
)
def test_a_connection_passes_exactly_when_none_of_its_messages_is_too_long(
    library: ctypes.CDLL, lengths: list[int], frame_size: int, piece_size: int, noise: bytes
) -> None:
    raw = b"".join(message(b"\xff" * length) for length in lengths)
    between = frame(CONTINUATION, 0, 1, noise)
    frames = [frame(DATA, 0, 1, piece) + between for piece in cut(raw, frame_size)]
    assert passes(library, *cut(connection(opened(1), *frames), piece_size)) is all(length <= MOST for length in lengths)
