"""The door in the real Triton, between a supervisor and an engine that say what the test wants."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import grpc
import pytest

from dragoman import native
from dragoman.serving.link.channel import Channel, ChannelClosed
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.metrics import series_frame
from dragoman.serving.supervisor.ports import free_port
from dragoman.serving.triton.flags import Address, TritonFlags
from dragoman.serving.triton.installation import find_installation
from dragoman.serving.triton.repository import with_door
from dragoman.serving.triton.routes import RoutingTable
from dragoman.serving.triton.stub_link import SUPERVISOR_VARIABLE
from served import Caller, StreamError, eventually

GRID = struct.pack("<II", 1, 1)
GOOD = (b"{}", GRID, struct.pack("<f", -0.5), struct.pack("<i", 3), b"gut")

pytestmark = pytest.mark.skipif(native.backend_library() is None, reason="the door is not built: there is no C++ compiler")


@contextlib.contextmanager
def listening(path: Path, answer: Callable[[Channel, Frame], None]) -> Iterator[None]:
    """Hear everybody who connects to `path`."""
    with socket.socket(socket.AF_UNIX) as door_bell, selectors.DefaultSelector() as selector:
        door_bell.bind(str(path))
        door_bell.listen()
        selector.register(door_bell, selectors.EVENT_READ)
        over = threading.Event()

        def hear() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.05):
                    if key.fileobj is door_bell:
                        selector.register(Channel(door_bell.accept()[0]), selectors.EVENT_READ)
                        continue
                    channel = cast(Channel, key.fileobj)
                    try:
                        for frame in channel.receive():
                            answer(channel, frame)
                    except ChannelClosed:
                        selector.unregister(channel)
                        channel.close()

        thread = threading.Thread(target=hear)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for key in list(selector.get_map().values()):
                if isinstance(key.fileobj, Channel):
                    key.fileobj.close()


def say(channel: Channel, frame: Frame) -> None:
    """An engine that is broken where the text says so."""
    if frame.kind is Kind.TRANSLATE:
        channel.send(Frame(Kind.ANSWER, frame.request, GOOD if frame.parts[2] == b"good" else (b"{}",)))
    if frame.kind is Kind.STREAM:
        first = (b"a piece", b"{}") if frame.parts[2] == b"good" else ()
        channel.send(Frame(Kind.CHUNK, frame.request, first))
        channel.send(Frame(Kind.ANSWER, frame.request, (b"", b"{}")))


@pytest.fixture(scope="module")
def log() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:  # unix sockets have short names only
        yield Path(scratch) / "log"


@pytest.fixture(scope="module")
def caller(log: Path) -> Iterator[Caller]:
    scratch, library, address = log.parent, native.backend_library(), Address("127.0.0.1", free_port("127.0.0.1"))
    assert library is not None
    table = RoutingTable(("en-de",), {"en-de": (str(scratch / "en-de-1.sock"),)})

    def route(channel: Channel, _hello: Frame) -> None:
        channel.send(series_frame())
        channel.send(table.frame())

    installation = find_installation(scratch / "triton", with_stubs=False)
    models = with_door(library, scratch / "models")
    flags = TritonFlags(
        models, installation.backend_directory, address, None, secrets.token_hex(8), "door", exit_timeout_s=1
    )
    environment = {**os.environ, **installation.environment, SUPERVISOR_VARIABLE: str(scratch / "stubs.sock")}
    supervisor, engine = listening(scratch / "stubs.sock", route), listening(scratch / "en-de-1.sock", say)
    with log.open("w") as written, supervisor, engine:
        triton = subprocess.Popen([str(installation.binary), *flags.argv()], env=environment, stdout=written, stderr=written)
        caller = Caller(str(address))
        try:
            grpc.channel_ready_future(caller.channel).result(30)
            yield caller
        finally:
            caller.close()
            triton.terminate()
            triton.wait(20)


def test_an_answer_that_can_not_be_read_fails_alone_and_the_log_says_why(caller: Caller, log: Path) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        caller.translate(["broken"])
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert failed.value.details().startswith("INTERNAL: ")
    assert eventually(lambda: "the door could not pass a request on" in log.read_text())
    assert caller.translate(["good"]).best == ["gut"]


def test_a_stream_that_lacks_a_piece_does_not_end_as_if_it_were_whole(caller: Caller) -> None:
    assert [each["chunk"] for each in caller.stream("good")] == ["a piece", ""]
    with pytest.raises(StreamError, match="INTERNAL"):
        list(caller.stream("broken"))
