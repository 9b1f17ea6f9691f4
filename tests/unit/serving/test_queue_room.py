"""What the Triton backends know of the room in the queue."""

from __future__ import annotations

import struct
from collections import deque
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import ServeError
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.process.queue_room import QueueRoom, read_refused

CHANNEL = cast(Channel, "backend")


class Backend:
    """Both sides of a connection: the backend's arithmetic, the frames under way, and an engine's queue."""

    def __init__(self, places: int) -> None:
        self.limit, self.queued = places, 0
        self.sent = self.read = 0
        self.known = (0, 1 << 63)
        self.to_engine, self.to_backend = 0, deque[Frame]()
        self.room = QueueRoom(places, lambda _, frame: self.to_backend.append(frame))
        self.room.add(CHANNEL)

    @property
    def is_full(self) -> bool:
        return self.sent - self.known[0] >= self.known[1]

    def publish(self) -> None:
        self.room.publish(self.limit - self.queued, 0.25)

    def submit(self) -> None:
        if not self.is_full:
            self.sent += 1
            self.to_engine += 1

    def engine_reads(self) -> None:
        if self.to_engine:
            self.to_engine -= 1
            self.room.count(CHANNEL)
            self.queued += 1

    def sequence_leaves(self) -> None:
        self.queued -= self.queued > 0

    def backend_reads(self) -> None:
        if self.to_backend:
            read, places, wait_ms = struct.unpack("<QQQ", self.to_backend.popleft().parts[0])
            assert wait_ms == 250
            self.known = read, places


@given(
    places=st.integers(1, 9),
    work=st.lists(
        st.sampled_from(["publish", "submit", "submit", "submit", "engine_reads", "sequence_leaves", "backend_reads"]),
        max_size=300,
    ),
)
def test_the_queue_never_overflows_and_no_place_stays_empty(places: int, work: list[str]) -> None:
    backend = Backend(places)
    backend.publish()
    backend.backend_reads()
    for name in work:
        getattr(backend, name)()
        assert backend.queued <= backend.limit
    while backend.to_engine:
        backend.engine_reads()
    backend.publish()
    while backend.to_backend:
        backend.backend_reads()
    assert backend.is_full == (backend.queued == backend.limit)


def test_a_long_queue_with_room_costs_one_frame_for_half_a_queue_of_requests() -> None:
    backend, frames = Backend(1000), 0
    for _ in range(5000):
        backend.submit()
        backend.engine_reads()
        backend.publish()
        backend.sequence_leaves()
        frames += len(backend.to_backend)
        backend.backend_reads()
    assert backend.sent == 5000
    assert frames <= 1 + 5000 // 500


def test_a_short_queue_that_is_empty_again_takes_a_burst_that_fills_it() -> None:
    backend = Backend(8)
    for burst in (3, 8):
        for _ in range(burst):
            backend.submit()
            backend.engine_reads()
        backend.publish()
        while backend.queued:
            backend.sequence_leaves()
        backend.publish()
        while backend.to_backend:
            backend.backend_reads()
    assert backend.sent == 3 + 8


def test_a_backend_that_disconnected_is_sent_nothing() -> None:
    backend = Backend(1)
    backend.room.remove(CHANNEL)
    backend.room.count(CHANNEL)
    backend.publish()
    assert not backend.to_backend


@pytest.mark.parametrize("parts", [(), (b"",), (bytes(4),), (bytes(8), bytes(8))])
def test_a_count_of_another_size_breaks_the_connection(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(ServeError, match="one number"):
        read_refused(Frame(Kind.REFUSED, 0, parts))
