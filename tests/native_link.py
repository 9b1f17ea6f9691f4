"""The door's link by itself, compiled for the tests, with the face of `StubLink`: the same tests hold for both."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from native import build

from dragoman.serving.failures import Failure
from dragoman.serving.link.frames import FrameReader, Kind
from dragoman.serving.triton.stub_link import Reply
from dragoman.wire import ErrorCode

__all__ = ["NativeLink", "asked_model", "can_compile"]

can_compile = pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler")

_DELIVER = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
_FAIL = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p)
_IS_CANCELLED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)
_LONGEST_NAME = 4096


@cache
def _library() -> ctypes.CDLL:
    """Compiled once a session; its directory goes when it is open."""
    scratch = Path(mkdtemp())
    sources = [build.BACKEND / "src" / name for name in build.LINK_SOURCES]
    command = [*build.compiler(), *build.flags(), "-O1", "-I", build.BACKEND / "src", "-shared", "-o", scratch / "link.so"]
    subprocess.run([*command, Path(__file__).with_suffix(".cpp"), *sources], check=True)
    library = ctypes.CDLL(str(scratch / "link.so"))
    shutil.rmtree(scratch)
    library.link_open.restype = ctypes.c_void_p
    library.link_tables.restype = ctypes.c_uint64
    for function in (library.link_tables, library.link_close, library.link_wait, library.link_submit):
        function.argtypes = [ctypes.c_void_p]
    library.link_wait.argtypes = [ctypes.c_void_p, ctypes.c_double]
    parts = (ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)
    library.link_submit.argtypes = [ctypes.c_void_p, ctypes.c_int, *parts, ctypes.c_uint64]
    return library


class NativeLink:
    """What `StubLink` does, in C++."""

    def __init__(self, supervisor: str, name: str) -> None:
        self._replies: dict[int, Reply] = {}
        self._numbers = itertools.count(1)
        self._callbacks = (_DELIVER(self._deliver), _FAIL(self._fail), _IS_CANCELLED(self._is_cancelled))
        self._handle: Any = _library().link_open(supervisor.encode(), name.encode(), *self._callbacks)

    @property
    def tables(self) -> int:
        return int(_library().link_tables(self._handle))

    def wait_until_routed(self, timeout_s: float) -> bool:
        return bool(_library().link_wait(self._handle, timeout_s))

    def submit(self, kind: Kind, parts: tuple[bytes, ...], reply: Reply) -> None:
        number = next(self._numbers)
        self._replies[number] = reply
        pointers = (ctypes.c_char_p * len(parts))(*parts)
        sizes = (ctypes.c_uint64 * len(parts))(*map(len, parts))
        _library().link_submit(self._handle, int(kind), pointers, sizes, len(parts), number)

    def close(self) -> None:
        _library().link_close(self._handle)

    def _deliver(self, number: int, frame: int, size: int) -> None:
        for each in FrameReader().feed(ctypes.string_at(frame, size)):
            self._replies[number].deliver(each)

    def _fail(self, number: int, code: bytes, text: bytes) -> None:
        self._replies[number].fail(Failure(ErrorCode(code.decode()), text.decode()))

    def _is_cancelled(self, number: int) -> int:
        return int(self._replies[number].is_cancelled())


def asked_model(options: bytes) -> tuple[bool, str | None]:
    """Whether the options can be read, and the model that they name."""
    name = ctypes.create_string_buffer(_LONGEST_NAME)
    found = _library().find_asked_model(options, ctypes.c_uint64(len(options)), name, ctypes.c_uint64(_LONGEST_NAME))
    return found != 0, name.value.decode(errors="replace") if found == 2 else None
