"""The request handler on an engine with a fake model: everything but Triton, sockets and ONNX Runtime."""

from __future__ import annotations

import gc
import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from fake_bundle import MANIFEST, VOCABULARY, CountingLetters, Letters, fake_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.bundle.languages import LanguageResolver, language_resolver
from dragoman.errors import Overloaded, ServeError, ServerError
from dragoman.serving.engine import Engine, EngineLimits, Sequence, SessionReply
from dragoman.serving.in_process import model_facts
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import NO_DETAILS, Frame, Kind
from dragoman.serving.metrics import PAIR_TEXTS, TERMS, Recorder
from dragoman.serving.process import omission_guard, request_admission, request_metrics
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.request_handler import RequestHandler
from dragoman.serving.process.requests import PartOwner, TextState, TranslationRequest
from dragoman.serving.process.task_queue import Task, TaskQueue
from dragoman.wire import Limits
from fake_runtime import FakeRuntime
from stepped_engine import check_invariants


class Server:
    """A request handler, its engine, and everything it has sent."""

    def __init__(
        self,
        limits: EngineLimits | None = None,
        cache_bytes: int = 1 << 20,
        *,
        tokenizer: Letters | None = None,
        engine: Engine | None = None,
        languages: LanguageResolver | None = None,
        wire_limits: Limits | None = None,
    ) -> None:
        self.engine = engine or Engine(FakeRuntime(VOCABULARY), model_facts(MANIFEST), limits)
        self.recorder = Recorder()
        bundle = fake_bundle(
            self.engine, cache_bytes=cache_bytes, tokenizer=tokenizer, languages=languages, limits=wire_limits
        )
        self.sent: list[tuple[str, Frame]] = []
        self.tasks = TaskQueue()
        self.handler = RequestHandler(bundle, self.recorder, Replies(self.send), self.tasks)

    def send(self, channel: Channel, frame: Frame) -> None:
        self.sent.append((str(channel), frame))

    def ask(
        self,
        number: int,
        *texts: str,
        kind: Kind = Kind.TRANSLATE,
        backend: str = "backend",
        ago_s: float = 0.0,
        **options: object,
    ) -> None:
        arrived = struct.pack("<d", time.monotonic() - ago_s)
        parts = (arrived, json.dumps(options).encode(), *(text.encode() for text in texts))
        self.handler.translate(cast(Channel, backend), Frame(kind, number, parts))

    def turn(self) -> None:
        self.tasks.run(1.0)
        if self.engine.busy:
            for event in self.engine.step():
                if not isinstance(event, SessionReply):
                    self.handler.handle(event)
        self.handler.resume_parked()

    def finish(self) -> Server:
        while len(self.tasks) or self.engine.busy:
            self.turn()
        check_invariants(self.engine)
        return self

    def last_answers(self, number: int) -> list[Frame]:
        return [frame for _, frame in self.sent if frame.request == number and frame.kind in (Kind.ANSWER, Kind.ERROR)]

    def texts(self, number: int) -> list[str]:
        (answer,) = self.last_answers(number)
        assert answer.kind is Kind.ANSWER, answer
        return [part.decode() for part in answer.parts[4:]]

    def details(self, number: int, kind: Kind = Kind.TRANSLATE) -> dict[str, Any]:
        (answer,) = self.last_answers(number)
        return cast("dict[str, Any]", json.loads(answer.parts[1 if kind is Kind.STREAM else 0]))

    def error(self, number: int) -> str:
        (answer,) = self.last_answers(number)
        assert answer.kind is Kind.ERROR
        return answer.parts[1].decode()


def alone(text: str, **options: object) -> str:
    server = Server()
    server.ask(1, text, **options)
    return server.finish().texts(1)[0]


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


def test_a_document_longer_than_the_queue_is_fed_bit_by_bit() -> None:
    server = Server(EngineLimits(max_rows=2, max_beam_size=2, max_queue_requests=3))
    server.ask(1, "\n".join(f"line {number}" for number in range(40)))
    assert server.finish().texts(1)[0].count("\n") == 39


def test_a_request_that_finds_the_queue_full_is_refused() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=2), cache_bytes=0)
    for number in range(8):
        server.ask(number, "hello")
    server.finish()
    refused = [number for number in range(8) if server.last_answers(number)[0].kind is Kind.ERROR]
    assert refused == [2, 3, 4, 5, 6, 7]
    assert all(server.error(number).startswith("OVERLOADED retry_after_ms=") for number in refused)


def test_a_full_queue_refuses_before_anything_is_tokenised() -> None:
    tokenizer = CountingLetters()
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=1), cache_bytes=0, tokenizer=tokenizer)
    server.ask(0, "hello")
    server.tasks.run(1.0)
    encoded = tokenizer.encoded
    for number in range(1, 5):
        server.ask(number, "hello\nworld")
    assert [server.error(number).split()[0] for number in range(1, 5)] == ["OVERLOADED"] * 4
    assert tokenizer.encoded == encoded


def test_requests_that_are_being_read_count_as_queued() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=2), cache_bytes=0)
    for number in range(3):
        server.ask(number, "hello")
    assert server.error(2).startswith("OVERLOADED")
    assert server.finish().texts(0) == server.texts(1)


def test_a_full_queue_does_not_refuse_what_the_cache_answers() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=1))
    server.ask(0, "hello")
    server.finish()
    server.ask(1, "world")
    server.ask(2, "hello")
    server.ask(3, "hello", cache=False)
    assert server.error(3).startswith("OVERLOADED")
    assert server.finish().texts(2) == server.texts(0)


def test_the_room_in_the_queue_counts_what_waits_and_what_is_being_read() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=3), cache_bytes=0)
    rooms = [server.handler.queue_room()[0]]
    for number in range(2):
        server.ask(number, "hello")
        rooms.append(server.handler.queue_room()[0])
    server.finish()
    assert [*rooms, server.handler.queue_room()[0]] == [3, 2, 1, 3]


def test_a_full_queue_has_room_for_lookups_in_a_response_cache_that_holds_something() -> None:
    server = Server(EngineLimits(max_rows=1, max_beam_size=1, max_queue_requests=1))
    server.ask(0, "hello", cache=False)
    assert server.handler.queue_room()[0] == 0
    server.finish()
    server.ask(1, "hello")
    server.finish()
    server.ask(2, "world")
    assert server.handler.queue_room()[0] > 0


def test_requests_that_the_backend_refused_are_counted() -> None:
    server = Server()
    server.handler.count_refused(5)
    changes = {(name, label): amount for name, label, amount in server.recorder.take_changes()}
    assert changes["dragoman_requests_total", "overloaded"] == changes["dragoman_refusals_total", ""] == 5


def test_a_deadline_that_passes_while_a_text_is_split_ends_the_request() -> None:
    server = Server()
    server.ask(1, "word. " * 5000, timeout_ms=500, ago_s=1)
    for _ in range(2):
        server.tasks.run(0.0)  # one slice
    assert server.error(1).startswith("DEADLINE_EXCEEDED")
    assert (len(server.tasks), server.engine.busy, server.handler.open_requests) == (0, False, 0)


def test_long_texts_are_split_a_few_at_a_time() -> None:
    server = Server()
    pages = [("word. " * 50_000)[: 80_000 - number] for number in range(20)]
    for number, page in enumerate(pages):
        server.ask(number, page, cache=False)
    most = 0
    while len(server.tasks) and not server.engine.busy:
        server.tasks.run(0.0)
        most = max(most, server.handler.planned_characters)
    server.ask(99, "A short one.", cache=False)
    for number in range(len(pages)):
        server.handler.cancel(cast(Channel, "backend"), number)
    server.finish()
    assert 300_000 < most <= 1 << 19
    assert server.texts(99) == [alone("A short one.")]
    assert server.handler.planned_characters == 0


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
    left = [each for each in gc.get_objects() if type(each) in (TranslationRequest, TextState, Task)]
    assert left == []


def test_more_text_than_it_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_admission, "_MAX_OPEN_BYTES", 10_000)
    server, text = Server(), "1234567. " * 600
    server.ask(1, text)
    server.ask(2, text)
    server.ask(4, "12345678")
    server.finish()
    server.ask(3, text)
    server.finish()
    assert server.texts(1) == server.texts(3)
    assert "too much text is waiting" in server.error(2)
    assert server.texts(4) == [alone("12345678")], "short texts are always taken"


class TestSizeOfAnAnswer:
    def test_is_bounded_before_anything_is_translated(self) -> None:
        server = Server(wire_limits=Limits(max_request_bytes=100))
        server.ask(1, "1 " * 40 + "a", beam_size=8, num_hypotheses=8)
        assert "INVALID_REQUEST: the answer would have more than 300 bytes" in server.error(1)
        server.ask(2, "1 " * 40 + "a", beam_size=2, num_hypotheses=2)
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


class TestCache:
    def test_a_repeated_text_needs_no_engine(self) -> None:
        server = Server()
        server.ask(1, "hello")
        server.finish()
        steps = server.engine.counters.steps
        server.ask(2, "hello")
        assert server.finish().texts(2) == server.texts(1)
        assert server.engine.counters.steps == steps
        assert server.details(2)["texts"][0]["cached"]

    @pytest.mark.parametrize(
        "change", [{"beam_size": 2}, {"max_length": 3}, {"prefix_text": "a"}, {"split": "line"}, {"sampling": True}]
    )
    def test_whatever_changes_the_answer_is_part_of_the_question(self, change: dict[str, object]) -> None:
        server = Server()
        server.ask(1, "hello")
        server.finish()
        server.ask(2, "hello", **change)
        assert not server.finish().details(2)["texts"][0]["cached"]

    def test_a_question_longer_than_its_answer_is_not_kept(self) -> None:
        server = Server()
        for number in (1, 2):
            server.ask(number, "hello", bad_words=[[5] * 300])
            server.finish()
        assert not server.details(2)["texts"][0]["cached"]

    def test_a_caller_may_decline_it(self) -> None:
        server = Server()
        server.ask(1, "hello")
        server.finish()
        server.ask(2, "hello", cache=False)
        assert not server.finish().details(2)["texts"][0]["cached"]

    def test_without_room_it_is_off(self) -> None:
        server = Server(cache_bytes=0)
        server.ask(1, "hello")
        server.finish()
        server.ask(2, "hello")
        assert not server.finish().details(2)["texts"][0]["cached"]


@pytest.mark.parametrize("options", [{"prefix_text": "ab"}, {"prefix": [9, 7]}])
def test_a_prefix_begins_the_first_part_of_a_text_alone(options: dict[str, object]) -> None:
    server = Server()
    server.ask(1, "one\nseven", **options)
    assert server.finish().texts(1) == [f"{alone('one', **options)}\n{alone('seven')}"]


class TestOmissionGuard:
    """With `on_suspicion`: the fake model ends few sentences, which is suspicious."""

    TEXT = "one\n\n seven of them"

    def guarded(self, number: int, server: Server, kind: Kind = Kind.TRANSLATE, **options: object) -> dict[str, Any]:
        server.ask(number, self.TEXT, kind=kind, **options)
        server.finish()
        return cast("dict[str, Any]", server.details(number, kind)["texts"][0])

    def counted(self, server: Server) -> dict[str, float]:
        changes = server.recorder.take_changes()
        return {label: amount for name, label, amount in changes if name == "dragoman_suspicious_sentences_total"}

    def test_nothing_is_told_of_sentences_unless_asked(self) -> None:
        server = Server()
        assert "sentences" not in self.guarded(1, server)
        assert self.counted(server) == {}

    def test_a_report_changes_nothing_but_the_details(self) -> None:
        server = Server()
        told = self.guarded(1, server, on_suspicion="report")
        assert server.texts(1) == [alone(self.TEXT)]
        assert (told["parts"], told["suspicious"], len(told["sentences"])) == (2, 2, 2)
        assert all("unfinished" in each["suspicions"] and each["second"] is None for each in told["sentences"])
        assert self.counted(server) == {"reported": 2}

    def test_a_suspicious_sentence_is_translated_again_and_the_better_one_is_taken(self) -> None:
        server = Server()
        told = self.guarded(1, server, on_suspicion="retry")
        wide = [alone(part, beam_size=4, no_repeat_ngram_size=3) for part in ("one", "seven of them")]
        greedy = [alone(part) for part in ("one", "seven of them")]
        expected = [
            better if each["second"] == "replaced" else first
            for better, first, each in zip(wide, greedy, told["sentences"], strict=True)
        ]
        assert server.texts(1) == ["\n\n ".join(expected)]
        assert sum(self.counted(server).values()) == 2

    def test_a_sentence_that_can_not_be_submitted_again_keeps_its_translation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server = Server()
        submit = server.engine.submit

        def refuse_the_second(sequence: Sequence) -> None:
            if sequence.options.beam_size > 1:
                raise _Full
            submit(sequence)

        monkeypatch.setattr(server.engine, "submit", refuse_the_second)
        told = self.guarded(1, server, on_suspicion="retry")
        assert [each["second"] for each in told["sentences"]] == [None, None]
        assert server.texts(1) == [alone(self.TEXT)]

    def test_a_stream_joined_is_the_translation(self) -> None:
        server = Server(cache_bytes=0)
        self.guarded(1, server, on_suspicion="retry")
        self.guarded(2, server, kind=Kind.STREAM, on_suspicion="retry")
        chunks = [frame.parts[0].decode() for _, frame in server.sent if frame.request == 2]
        assert "".join(chunks) == server.texts(1)[0]

    def test_the_cache_keeps_what_was_found(self) -> None:
        server = Server()
        first = self.guarded(1, server, on_suspicion="report")
        again = self.guarded(2, server, on_suspicion="report")
        assert (again["cached"], again["sentences"]) == (True, first["sentences"])
        assert not self.guarded(3, server)["cached"]

    @pytest.mark.parametrize(
        ("asked", "min_length", "expected"), [("ignore", 0, 20), ("report", 0, 12), ("retry", 0, 12), ("retry", 15, 15)]
    )
    def test_endless_repetition_ends_early(
        self, asked: str, min_length: int, expected: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server, submitted = Server(), list[Sequence]()
        monkeypatch.setattr(server.engine, "submit", submitted.append)
        monkeypatch.setattr(omission_guard, "longest_answer", lambda _source_tokens: 12)
        server.ask(1, "one two", on_suspicion=asked, max_length=20, min_length=min_length)
        server.turn()
        assert [sequence.options.max_length for sequence in submitted] == [expected]


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

    def test_a_stub_that_went_away_is_not_answered(self) -> None:
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


class TestProbe:
    def counted(self, server: Server) -> bool:
        names = {"dragoman_requests_total", "dragoman_source_tokens_total", "dragoman_target_tokens_total"}
        return any(name in names and amount for name, _, amount in server.recorder.take_changes())

    def test_is_a_real_translation_that_is_not_counted(self) -> None:
        server = Server()
        server.ask(1, "ok", request_id="probe")
        assert server.finish().texts(1)
        assert not self.counted(server)

    def test_does_not_wait_behind_real_requests(self) -> None:
        server = Server()
        server.ask(1, "hello")
        server.turn()
        server.recorder.take_changes()
        server.ask(2, "ok", request_id="probe")
        assert server.error(2).startswith("OVERLOADED")
        assert not self.counted(server)


class TestFairShares:
    """A long document leaves room for those who come after it."""

    LIMITS = EngineLimits(max_rows=12, max_beam_size=4)

    def test_a_document_alone_holds_two_thirds_of_the_rows(self) -> None:
        server = Server(self.LIMITS)
        server.ask(1, "\n".join(f"line {number}" for number in range(40)), min_length=6)
        server.turn()
        assert server.engine.gauges().running_rows == 8

    def test_a_document_does_not_fill_the_queue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dragoman.serving.process.fair_share._WAITING_TOKENS", 20)
        server = Server(self.LIMITS)
        server.ask(1, "\n".join("a line of words" for _ in range(40)), min_length=6)
        server.tasks.run(1.0)
        assert server.engine._scheduler.waiting.tokens == 32  # the second line of 16 tokens was submitted with 16 waiting
        server.finish()
        assert server.texts(1)[0].count("\n") == 39

    def test_two_documents_hold_as_much_each_and_leave_a_fifth(self) -> None:
        server = Server(self.LIMITS, cache_bytes=0)
        for number in (1, 2):
            server.ask(number, "\n".join("word" for _ in range(40)), min_length=6)
        server.turn()
        assert server.engine.gauges().running_rows == 10

    @pytest.mark.parametrize("documents", [1, 3])
    def test_a_sentence_does_not_wait_for_documents(self, documents: int) -> None:
        server = Server(self.LIMITS, cache_bytes=0)
        for number in range(documents):
            server.ask(number, "\n".join(f"line {number}" for number in range(200)), min_length=6)
        for _ in range(20):
            server.turn()
        server.ask(99, "hello", max_length=4, min_length=4)
        turns = 0
        while not server.last_answers(99):
            server.turn()
            turns += 1
        assert turns <= 4 + 4 + 2  # its tokens, the steps it may wait for company, the way in and out
        assert server.texts(99) == [alone("hello", max_length=4, min_length=4)]
        assert not server.last_answers(0)
        server.finish()

    def test_a_long_sentence_counts_by_its_tokens(self) -> None:
        server = Server(EngineLimits(max_rows=12, max_beam_size=4, target_tokens_per_row=4))
        server.ask(1, "\n".join("a long line of words" for _ in range(40)))
        server.turn()
        assert server.engine.gauges().running_rows < 8

    def test_requests_that_are_tokenised_take_turns(self) -> None:
        server = Server(self.LIMITS)
        server.ask(1, "\n".join(f"line {number}" for number in range(500)))
        server.ask(2, "hello")
        server.tasks.run(0.0)  # one step: the document's
        server.tasks.run(0.0)  # and the other's
        server.engine.step()
        assert any(part.request.number == 2 for part in owners(server.engine))


def owners(engine: Engine) -> list[PartOwner]:
    return [sequence.owner for sequence in engine._active if isinstance(sequence.owner, PartOwner)]


class TestLanguages:
    MANY = language_resolver(MANIFEST, {">>deu<<": 7, ">>fra<<": 9})

    def sources(self, text: str, languages: LanguageResolver | None, **options: object) -> list[tuple[int, ...]]:
        server = Server(languages=languages)
        server.ask(1, text, **options)
        server.tasks.run(1.0)
        if server.last_answers(1):
            pytest.fail(server.error(1))
        return [sequence.source for sequence in server.engine._active]

    def test_the_token_of_the_target_language_goes_before_every_part(self) -> None:
        plain = Letters().encode("a")
        assert self.sources("a\na", self.MANY, target_language="fr") == [(9, *plain)] * 2

    def test_without_a_language_the_source_is_as_it_is(self) -> None:
        assert self.sources("a", self.MANY) == [tuple(Letters().encode("a"))]

    def test_a_literal_token_goes_before_every_part_of_a_multilingual_model(self) -> None:
        assert len(set(self.sources(">>deu<< a\na", self.MANY))) == 1

    def test_a_literal_token_is_text_for_a_model_of_one_pair(self) -> None:
        assert len(set(self.sources(">>deu<< a\na", None))) == 2

    def test_a_language_that_the_model_does_not_have_is_refused(self) -> None:
        server = Server(languages=self.MANY)
        server.ask(1, "a", target_language="nl")
        assert server.error(1).startswith("INVALID_REQUEST: target_language='nl' is not a target language")

    def test_a_literal_token_beside_the_option_is_refused(self) -> None:
        server = Server(languages=self.MANY)
        server.ask(1, ">>deu<< a", target_language="fr")
        assert "use one of the two" in server.finish().error(1)

    def test_each_language_has_its_own_place_in_the_cache(self) -> None:
        server = Server(languages=self.MANY)
        for number, code in enumerate(("de", "fr", "deu")):
            server.ask(number, "hello", target_language=code)
            server.finish()
        assert [server.details(number)["texts"][0]["cached"] for number in range(3)] == [False, False, True]


class TestTasks:
    def test_the_prefix_goes_before_every_part(self) -> None:
        server = Server()
        server.ask(1, "a\nb", task_prefix="x: ", split="line")
        server.tasks.run(1.0)
        sources = {sequence.source for sequence in server.engine._active}
        assert sources == {tuple(Letters().encode(text)) for text in ("x: a", "x: b")}

    def test_a_prefix_that_leaves_no_room_for_a_text_is_refused(self) -> None:
        server = Server()
        server.ask(1, "a", task_prefix="x" * 13)
        assert "task_prefix has 14 tokens; for this model it may have 12" in server.finish().error(1)

    def test_texts_are_counted_by_their_languages_up_to_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(request_metrics, "MOST_PAIRS", 1)
        server = Server(languages=TestLanguages.MANY)
        for number, code in enumerate(("de", "fr", "de")):
            server.ask(number, "hello", "you", target_language=code)
            server.finish()
        counted = {label: value for name, label, value in server.recorder.take_changes() if name == PAIR_TEXTS.name}
        assert counted == {"und>de": 4, "other": 2}


class _Full(Overloaded):
    def __init__(self) -> None:
        super().__init__("the queue is full")


class Faults:
    """Raises now and then, as the test draws it."""

    def __init__(self, draw: Callable[[], type[BaseException] | None]) -> None:
        self._draw = draw

    def maybe(self) -> None:
        if (kind := self._draw()) is not None:
            raise kind()


class FaultyLetters(Letters):
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def encode(self, text: str) -> list[int]:
        self._faults.maybe()
        return super().encode(text)

    def encode_target(self, text: str) -> list[int]:
        self._faults.maybe()
        return super().encode_target(text)

    def decode(self, ids: Any) -> str:
        self._faults.maybe()
        return super().decode(ids)


class FaultyEngine(Engine):
    """Refuses and fails now and then."""

    faults: Faults

    def submit(self, sequence: Sequence) -> None:
        self.faults.maybe()
        super().submit(sequence)


class TestFaults:
    """Whatever handling a request raises is that request's answer, and nobody else's."""

    @pytest.mark.parametrize("fault", [MemoryError, RecursionError, ValueError])
    @pytest.mark.parametrize("where", ["encode", "encode_target", "decode"])
    @pytest.mark.parametrize("kind", [Kind.TRANSLATE, Kind.STREAM])
    def test_of_the_tokenizer_are_internal_errors(
        self,
        fault: type[Exception],
        where: str,
        kind: Kind,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(*_: object) -> None:
            raise fault("secret text")

        tokenizer = Letters()
        server = Server(tokenizer=tokenizer)
        monkeypatch.setattr(tokenizer, where, fail)
        server.ask(1, "hello", kind=kind, prefix_text="a")
        assert server.finish().error(1) == "INTERNAL: the server failed at this request; its log says why"
        monkeypatch.undo()
        server.ask(2, "hello")
        assert server.finish().texts(2) == [alone("hello")]
        assert server.handler.open_requests == 0
        fields = [vars(record).get("dragoman_fields", {}) for record in caplog.records]
        assert any(each.get("error") == fault.__name__ for each in fields)
        assert "secret" not in str(fields)

    def test_an_answer_that_can_not_be_sent_is_an_internal_error(self) -> None:
        server = Server()
        send, refused = server.send, []

        def refuse_answers(channel: Channel, frame: Frame) -> None:
            if frame.kind is Kind.ANSWER and not refused:
                refused.append(frame)
                raise ServeError("a message of 300000000 bytes is more than 268435456")
            send(channel, frame)

        server.handler._replies = Replies(refuse_answers)
        server.ask(1, "hello")
        assert server.finish().error(1).startswith("INTERNAL: ")
        assert refused

    def test_a_number_that_is_in_use_breaks_the_protocol(self) -> None:
        server = Server()
        server.ask(1, "hello")
        with pytest.raises(ServeError, match="is in use"):
            server.ask(1, "hello")
        assert server.finish().texts(1) == [alone("hello")]

    @pytest.mark.parametrize("parts", [(), (b"",), (b"short", b""), (struct.pack("<d", float("nan")), b"", b"x")])
    def test_a_malformed_frame_breaks_the_protocol(self, parts: tuple[bytes, ...]) -> None:
        with pytest.raises(ServeError):
            Server().handler.translate(cast(Channel, "backend"), Frame(Kind.TRANSLATE, 1, parts))

    @settings(max_examples=80, deadline=None)
    @given(st.data())
    def test_every_request_gets_exactly_one_last_answer(self, data: st.DataObject) -> None:
        kinds: list[type[BaseException] | None] = [None] * 6
        kinds += [ValueError, MemoryError, RecursionError, ServerError, _Full]
        faults = Faults(lambda: data.draw(st.sampled_from(kinds)))
        engine = FaultyEngine(FakeRuntime(VOCABULARY), model_facts(MANIFEST), EngineLimits(max_rows=4, max_beam_size=2))
        engine.faults = faults
        server = Server(tokenizer=FaultyLetters(faults), engine=engine)
        texts = st.lists(st.text("ab \n.", min_size=1, max_size=40), min_size=1, max_size=3)
        count = data.draw(st.integers(1, 5))
        for number in range(count):
            kind = data.draw(st.sampled_from([Kind.TRANSLATE, Kind.STREAM]))
            options = {"on_suspicion": data.draw(st.sampled_from(["ignore", "retry"]))}
            server.ask(number, *data.draw(texts), kind=kind, prefix_text=data.draw(st.sampled_from(["", "a"])), **options)
            if data.draw(st.booleans()):
                server.turn()
        server.finish()
        assert [len(server.last_answers(number)) for number in range(count)] == [1] * count
        assert server.handler.open_requests == 0
        assert (server.handler._share.rows, server.handler._share.slots) == (0, 0)


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


def test_links_are_told_in_characters_of_the_whole_text() -> None:
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
