"""The Triton backend's EngineClient by itself, compiled for the tests."""

from __future__ import annotations

import ctypes
import itertools
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from native import build

from dragoman.serving.ipc.frames import Frame, FrameReader, Kind
from dragoman.wire import Limits

__all__ = ["EngineClient", "Reply", "compile_client", "json_of", "wire_version"]

LIBRARY: Path | None = None
"""Compiled once a run for the tests; native/sanitize.py has one of its own."""

_DELIVER = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
_FAIL = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p)
_IS_CANCELLED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)
_STATUS_BYTES = 1 << 16


class Reply(Protocol):
    """Where the answer to one request goes."""

    def deliver(self, frame: Frame) -> None:
        """An answer, or a chunk with more to come."""

    def fail(self, text: str, details: bytes) -> None:
        """The message of an error response, and DETAILS of a stream's last response."""

    def is_cancelled(self) -> bool:
        """Has the caller gone away?"""


def compile_client(directory: Path) -> Path:
    """The library in `directory`."""
    return build.build_client(directory, Path(__file__).with_suffix(".cpp"))


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    handle, parts = ctypes.c_void_p, (ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)
    library.client_open.restype = handle
    for function in (library.client_tables, library.client_errors):
        function.argtypes, function.restype = [handle], ctypes.c_uint64
    library.client_close.argtypes = [handle]
    library.client_wait.argtypes = [handle, ctypes.c_double]
    library.client_status.argtypes = [handle, ctypes.c_char_p, ctypes.c_uint64]
    library.client_limits.argtypes = [handle, ctypes.POINTER(ctypes.c_uint64)]
    library.client_submit.argtypes = [handle, ctypes.c_int, ctypes.c_char_p, *parts, ctypes.c_uint64]
    library.json_of.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64]
    library.json_of.restype = ctypes.c_uint64
    return library


class EngineClient:
    """What the Triton backend has inside Triton; callbacks come from its own thread."""

    def __init__(self, supervisor: str) -> None:
        self._replies: dict[int, Reply] = {}
        self._numbers = itertools.count(1)
        self._callbacks = (_DELIVER(self._deliver), _FAIL(self._fail), _IS_CANCELLED(self._is_cancelled))
        self._handle: Any = _library().client_open(supervisor.encode(), *self._callbacks)

    @property
    def tables(self) -> int:
        return int(_library().client_tables(self._handle))

    @property
    def errors(self) -> int:
        """How often something was logged."""
        return int(_library().client_errors(self._handle))

    @property
    def status(self) -> bytes:
        buffer = ctypes.create_string_buffer(_STATUS_BYTES)
        _library().client_status(self._handle, buffer, _STATUS_BYTES)
        return buffer.value

    @property
    def limits(self) -> Limits:
        found = (ctypes.c_uint64 * 5)()
        _library().client_limits(self._handle, found)
        return Limits(*found)

    def wait_until_ready(self, timeout_s: float) -> bool:
        return bool(_library().client_wait(self._handle, timeout_s))

    def submit(self, kind: Kind, model: bytes, parts: tuple[bytes, ...], reply: Reply) -> None:
        number = next(self._numbers)
        self._replies[number] = reply
        pointers = (ctypes.c_char_p * len(parts))(*parts)
        sizes = (ctypes.c_uint64 * len(parts))(*map(len, parts))
        _library().client_submit(self._handle, int(kind), model, pointers, sizes, len(parts), number)

    def close(self) -> None:
        _library().client_close(self._handle)

    def _deliver(self, number: int, frame: int, size: int) -> None:
        for each in FrameReader().feed(ctypes.string_at(frame, size)):
            self._replies[number].deliver(each)

    def _fail(self, number: int, text: bytes, details: bytes) -> None:
        self._replies[number].fail(text.decode(), details)

    def _is_cancelled(self, number: int) -> int:
        return int(self._replies[number].is_cancelled())


def json_of(text: bytes) -> bytes:
    """The JSON string that the backend makes of `text`."""
    room = 16 + 6 * len(text)
    buffer = ctypes.create_string_buffer(room)
    size = int(_library().json_of(text, len(text), buffer, room))
    return buffer.raw[:size]


def wire_version() -> int:
    """The backend's."""
    return int(_library().wire_version())
