"""The request handler on an engine with a fake model: everything but Triton, sockets and ONNX Runtime."""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from handler_server import Server, alone
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serving.engine import EngineLimits
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import NO_DETAILS, Frame, Kind
from dragoman.serving.metrics import TERMS
from dragoman.serving.process.job_queue import Job
from dragoman.serving.process.requests import TextState, TranslationRequest
from dragoman.wire import Limits


def test_details_that_were_not_requested_are_not_written() -> None:
    server = Server()
    arrived = struct.pack("<d", time.monotonic()) + NO_DETAILS
    server.handler.translate(cast(Channel, "backend"), Frame(Kind.TRANSLATE, 1, (arrived, b"", b"hello")))
    server.ask(2, "hello", cache=False)
    assert server.finish().texts(1) == server.texts(2)
    assert server.last_answers(1)[0].parts[0] == b""
    assert server.details(2)["texts"]


def test_every_request_has_an_id() -> None:
    server = Server()
    server.ask(1, "one")
    server.ask(2, "one")
    server.ask(3, "one", request_id="a-1")
    server.finish()
    first, second, third = (server.details(number)["request_id"] for number in (1, 2, 3))
    assert first
    assert second not in ("", first)
    assert third == "a-1"


def test_texts_of_one_request_come_back_in_their_order() -> None:
    server = Server()
    server.ask(1, "one", "seventeen", "two")
    assert server.finish().texts(1) == [alone("one"), alone("seventeen"), alone("two")]


def test_a_document_is_joined_as_it_stood() -> None:
    server = Server()
    server.ask(1, " one\n\n  seven")
    assert server.finish().texts(1) == [f" {alone('one')}\n\n  {alone('seven')}"]
    assert server.details(1)["texts"][0]["parts"] == 2


def test_a_deadline_that_passes_while_a_text_is_split_ends_the_request() -> None:
    server = Server()
    server.ask(1, "word. " * 5000, timeout_ms=500, ago_s=1)
    for _ in range(2):
        server.jobs.run(0.0)  # one slice
    assert server.error(1).startswith("DEADLINE_EXCEEDED")
    assert (len(server.jobs), server.engine.busy, server.handler.open_requests) == (0, False, 0)


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (["hello world"], {}),
        (["hello world", "and more"], {"cache": False, "beam_size": 2}),
        (["one. two. three."], {"cache": False, "on_suspicion": "retry"}),
        (["word. " * 500], {"timeout_ms": 1, "ago_s": 1}),
        (["a" * 100_000], {}),
        (["hello"], {"top_k": -1}),
        (["<p>hello <b>world</b></p>"], {"format": "html"}),
    ],
)
def test_a_request_leaves_nothing_for_the_garbage_collector(asked: list[str], options: dict[str, Any]) -> None:
    server = Server()
    server.ask(1, *asked, **options)
    server.ask(2, *asked, kind=Kind.STREAM, **options)
    server.ask(3, *asked, **options)
    server.handler.cancel(cast(Channel, "backend"), 3)
    server.finish()
    assert len(server.sent) >= 3
    left = [each for each in gc.get_objects() if type(each) in (TranslationRequest, TextState, Job)]
    assert left == []


class TestSizeOfAnAnswer:
    def test_is_bounded_before_anything_is_translated(self) -> None:
        server = Server(wire_limits=Limits(max_request_bytes=100))
        server.ask(1, "1 " * 40 + "a", beam_size=8, num_hypotheses=8)
        assert "INVALID_REQUEST: 8 hypotheses of 81 bytes of text are too much for one answer (100 bytes)" in server.error(1)
        server.ask(2, "1 " * 20 + "a", beam_size=2, num_hypotheses=2)
        assert len(server.finish().texts(2)) == 2

    @pytest.mark.parametrize("cached", [False, True])
    def test_is_bounded_when_translations_are_longer_than_their_texts(self, cached: bool) -> None:
        server = Server(wire_limits=Limits(max_request_bytes=4))
        if cached:
            server.ask(1, "a")
            assert 4 < len(server.finish().texts(1)[0]) <= 12
        server.ask(2, "a", "a", "a", "a")
        assert "INVALID_REQUEST: the answer would have more than 12 bytes" in server.finish().error(2)


class TestStream:
    def chunks(self, server: Server, number: int) -> str:
        frames = [frame for _, frame in server.sent if frame.request == number]
        return "".join(frame.parts[0].decode() for frame in frames if frame.kind in (Kind.CHUNK, Kind.ANSWER))

    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_joined_is_the_translation(self, beam_size: int) -> None:
        server = Server()
        server.ask(1, "some words", kind=Kind.STREAM, beam_size=beam_size)
        assert self.chunks(server.finish(), 1) == alone("some words", beam_size=beam_size)

    def test_of_a_document_keeps_its_order(self) -> None:
        text = "a long first line\nb\n\nc c"
        server = Server()
        server.ask(1, text, kind=Kind.STREAM)
        assert self.chunks(server.finish(), 1) == alone(text)

    def test_of_two_texts_is_refused(self) -> None:
        server = Server()
        server.ask(1, "one", "two", kind=Kind.STREAM)
        assert "a stream translates one text" in server.error(1)


@pytest.mark.parametrize(("longest", "outcome"), [(6, "used"), (2, "missed")])
def test_terms_are_counted_by_whether_the_translation_has_them(longest: int, outcome: str) -> None:
    server = Server()
    server.ask(1, "hello", glossary=[["hello", "abc"]], max_length=longest, beam_size=2)
    server.finish().texts(1)
    changes = {(name, label): value for name, label, value in server.recorder.take_changes()}
    assert {key: value for key, value in changes.items() if key[0] == TERMS.name} == {(TERMS.name, outcome): 1}


@pytest.mark.parametrize(("kind", "outcome"), [("terms", "missed"), ("phrases", "used")])
def test_a_term_within_a_longer_word_is_counted_as_missed(kind: str, outcome: str) -> None:
    server = Server()
    server.ask(1, "hello", prefix=[6, 3, 4, 5], max_length=1, beam_size=2, **{kind: [[[3, 4, 5]]]})
    server.finish().texts(1)
    changes = {(name, label): value for name, label, value in server.recorder.take_changes()}
    assert {key: value for key, value in changes.items() if key[0] == TERMS.name} == {(TERMS.name, outcome): 1}


class TestTimes:
    """They count from the arrival at the server: a frame that was on its way or kept waiting says since when."""

    def sums(self, server: Server) -> dict[str, float]:
        """The sum of each histogram."""
        changes = server.recorder.take_changes()
        return {name.removesuffix("_seconds_sum"): value for name, _, value in changes if name.endswith("_seconds_sum")}

    @pytest.mark.parametrize("kind", [Kind.TRANSLATE, Kind.STREAM])
    def test_metrics_and_details_agree(self, kind: Kind) -> None:
        server = Server()
        server.ask(1, "hello", ago_s=5.0, kind=kind)
        (text,) = server.finish().details(1, kind)["texts"]
        sums = self.sums(server)
        assert 5.0 <= sums["dragoman_queue"] < 6.0
        assert text["queue_ms"] == pytest.approx(1000 * sums["dragoman_queue"], abs=0.001)
        assert text["first_token_ms"] == pytest.approx(1000 * sums["dragoman_first_token"], abs=0.001)
        assert text["queue_ms"] <= text["first_token_ms"] <= text["total_ms"]

    def test_a_token_takes_no_longer_because_its_request_waited(self) -> None:
        server = Server()
        server.ask(1, "hello", ago_s=5.0, min_length=6)
        server.finish()
        assert self.sums(server)["dragoman_token"] < 1.0

    def test_a_document_is_observed_once_and_takes_until_its_last_part(self) -> None:
        server = Server(EngineLimits(max_rows=2, max_beam_size=2))
        server.ask(1, "\n".join(f"line {number}" for number in range(60)))
        (text,) = server.finish().details(1)["texts"]
        changes = {(name, label): value for name, label, value in server.recorder.take_changes()}
        assert changes["dragoman_queue_seconds_count", ""] == 1
        assert text["total_ms"] >= 800 * changes["dragoman_request_seconds_sum", ""]
        assert text["queue_ms"] < text["total_ms"] / 2


@pytest.mark.parametrize("options", [{"prefix_text": "ab"}, {"prefix": [9, 7]}])
def test_a_prefix_begins_the_first_part_of_a_text_alone(options: dict[str, object]) -> None:
    server = Server()
    server.ask(1, "one\nseven", **options)
    assert server.finish().texts(1) == [f"{alone('one', **options)}\n{alone('seven')}"]


class TestEndings:
    def test_a_cancelled_request_is_answered_and_leaves_the_engine_empty(self) -> None:
        server = Server()
        server.ask(1, "hello\nworld")
        server.turn()
        server.handler.cancel(cast(Channel, "backend"), 1)
        assert server.finish().error(1).startswith("CANCELLED: ")
        assert server.handler.open_requests == 0

    def test_a_deadline_that_has_passed_already_is_one(self) -> None:
        server = Server()
        server.ask(1, "hello", timeout_ms=0.001)
        assert server.finish().error(1).startswith("DEADLINE_EXCEEDED: ")

    def test_a_backend_that_disconnected_is_not_answered(self) -> None:
        server = Server()
        server.ask(1, "hello", backend="gone")
        server.ask(2, "world", backend="here")
        server.turn()
        server.handler.forget(cast(Channel, "gone"))
        server.finish()
        assert server.last_answers(1) == []
        assert server.texts(2) == [alone("world")]

    def test_one_bad_text_refuses_its_request_and_no_other(self) -> None:
        server = Server()
        server.ask(1, "hello", "bad\x00")
        server.ask(2, "world")
        server.finish()
        assert server.error(1).startswith("INVALID_REQUEST: text 1 has the control character")
        assert server.texts(2) == [alone("world")]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_request_gets_one_last_answer_and_the_right_one(data: st.DataObject) -> None:
    server = Server(EngineLimits(max_rows=3, max_beam_size=2, max_queue_requests=6))
    words = st.text("abc \n", min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
    asked: dict[int, tuple[list[str], dict[str, object]]] = {}
    cancelled: set[int] = set()
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["ask", "ask", "ask", "turn", "cancel"]))
        if action == "ask":
            number = len(asked)
            options: dict[str, object] = {"beam_size": data.draw(st.integers(1, 2)), "cache": data.draw(st.booleans())}
            options["on_suspicion"] = data.draw(st.sampled_from(["ignore", "report"]))
            asked[number] = (data.draw(st.lists(words, min_size=1, max_size=4)), options)
            server.ask(number, *asked[number][0], **options)
        elif action == "turn":
            server.turn()
        elif asked:
            number = data.draw(st.sampled_from(sorted(asked)))
            server.handler.cancel(cast(Channel, "backend"), number)
            cancelled.add(number)
    server.finish()
    assert server.handler.open_requests == 0
    for number, (texts, options) in asked.items():
        (word,) = server.last_answers(number)
        if word.kind is Kind.ANSWER:
            assert server.texts(number) == [alone(text, **options) for text in texts]
        else:
            code = server.error(number).split(":")[0].split()[0]
            assert code in ({"CANCELLED", "OVERLOADED"} if number in cancelled else {"OVERLOADED"})


def test_links_count_characters_of_the_whole_text() -> None:
    server = Server()
    text = "Hello you. \n Goodbye all."
    server.ask(1, text, alignment=True)
    (translation,) = server.finish().texts(1)
    (links,) = server.details(1)["texts"][0]["alignment"]
    assert links
    second = [link for link in links if link[0] >= text.index("Goodbye")]
    assert 0 < len(second) < len(links)
    assert all(0 <= link[0] < link[1] <= len(text) and 0 <= link[2] < link[3] <= len(translation) for link in links)
    starts = [translation[link[2] : link[3]] for link in second]
    assert all(piece.strip() == piece for piece in starts)
    assert all(link[2] >= second[0][2] for link in second)
