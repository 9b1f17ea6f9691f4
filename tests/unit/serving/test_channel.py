import select
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.serving.ipc.channel import Channel, ChannelClosed
from dragoman.serving.ipc.frames import Frame, Kind


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    left, right = (Channel(end) for end in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def receive(channel: Channel, count: int) -> list[Frame]:
    frames: list[Frame] = []
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while len(frames) < count:
            assert selector.select(timeout=600), "nothing arrived"
            frames += channel.receive()
    return frames


def test_a_frame_arrives_as_it_was_sent(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    left.send(Frame(Kind.CANCEL, 7, (b"a", b"")))
    assert receive(right, 1) == [Frame(Kind.CANCEL, 7, (b"a", b""))]


def test_sending_to_a_peer_that_does_not_read_does_not_block(ends: tuple[Channel, Channel]) -> None:
    left, _ = ends
    left.send(Frame(Kind.ANSWER, 1, (bytes(4 << 20),)))
    assert left.has_backlog


def test_a_backlog_arrives_in_order_once_it_is_read(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    sent = [Frame(Kind.ANSWER, number, (bytes([number]) * (1 << 20),)) for number in range(3)]
    for frame in sent:
        left.send(frame)
    finished = threading.Event()

    def flush() -> None:
        while left.has_backlog and not finished.is_set():
            left.flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        assert receive(right, 3) == sent
    finally:
        finished.set()
        flusher.join()


def test_a_frame_goes_out_in_few_turns_to_a_peer_that_keeps_reading(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = ends
    sent, arrived = Frame(Kind.ANSWER, 1, (bytes(1 << 20),)), list[Frame]()

    def wait(readers: list, writers: list, errors: list, timeout_s: float) -> tuple[list, list, list]:
        if writers:  # meanwhile the other side reads
            arrived.extend(right.receive())
        return [], writers, []

    left.post(sent)
    monkeypatch.setattr(select, "select", wait)
    left.flush()
    monkeypatch.undo()
    assert not left.has_backlog
    assert arrived or receive(right, 1) == [sent]


def test_a_flush_does_not_wait_for_a_peer_that_does_not_read(ends: tuple[Channel, Channel]) -> None:
    left, _ = ends
    left.post(Frame(Kind.ANSWER, 1, (bytes(4 << 20),)))
    left.flush()
    before = left.backlog_bytes
    left.flush()
    assert left.backlog_bytes == before > 0


def test_a_peer_that_never_reads_is_given_up(ends: tuple[Channel, Channel]) -> None:
    left, _ = ends
    with pytest.raises(ChannelClosed, match="stopped reading"):
        for _ in range(6):
            left.send(Frame(Kind.ANSWER, 1, (bytes(60 << 20),)))


def test_the_end_of_the_other_side_is_noticed(ends: tuple[Channel, Channel]) -> None:
    left, right = ends
    right.close()
    with pytest.raises(ChannelClosed):
        left.receive()


def test_connecting_to_no_listener_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ChannelClosed, match="no process listens"):
        Channel.connect(str(tmp_path / "none.sock"))
