import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import ServeError
from dragoman.serving.ipc.frames import Frame, FrameReader, Kind, json_frame

frames = st.builds(
    Frame, st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=40), max_size=5).map(tuple)
)


@given(st.lists(frames, max_size=6), st.data())
def test_frames_survive_however_the_stream_is_cut(sent: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(frame.encode() for frame in sent)
    reader, received, start = FrameReader(), [], 0
    while start < len(stream):
        end = data.draw(st.integers(start + 1, len(stream)))
        received += reader.feed(stream[start:end])
        start = end
    assert received == sent


@given(st.binary(min_size=1, max_size=200))
def test_rubbish_is_refused_or_waited_for_but_never_crashes_the_reader(data: bytes) -> None:
    with contextlib.suppress(ServeError):
        FrameReader().feed(data)


def test_a_length_that_no_frame_can_have_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(ServeError, match="the stream is broken"):
        FrameReader().feed(b"\xff\xff\xff\xff")


def test_a_json_frame_gives_back_its_value() -> None:
    assert json_frame(Kind.PONG, {"steps": 3, "name": "ü"}).json() == {"steps": 3, "name": "ü"}
