"""Client-driven decoding in the engine process: every call gets one answer, and none is worth more than its share."""

from __future__ import annotations

import json
import re
import struct
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from fake_bundle import MANIFEST, CountingLetters, Letters, fake_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import ServeError
from dragoman.serving.engine import SessionReply
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import MAX_FRAME_BYTES, Frame, Kind
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.job_queue import JobQueue
from dragoman.serving.process.session_handler import SessionHandler
from dragoman.wire import MODEL_INFO_FIELDS, Limits

BACKEND = cast(Channel, SimpleNamespace(backlog_bytes=0))
START = MANIFEST.tokens.decoder_start


class Server:
    """A session handler, its engine, and what it has sent."""

    def __init__(self, tokenizer: Letters | None = None) -> None:
        self.bundle = fake_bundle(tokenizer=tokenizer, limits=Limits(max_command_bytes=2000))
        self.sent: list[Frame] = []
        self.jobs = JobQueue(clock=lambda: 0.0)  # whose turn it is does not depend on how fast the machine is
        self.handler = SessionHandler(self.bundle, "key", Replies(lambda _, frame: self.sent.append(frame)), self.jobs)

    def encode(self, *texts: str, **options: object) -> Frame:
        parts = (json.dumps(options).encode(), *(text.encode() for text in texts))
        return self.call(Kind.ENCODE, *parts)

    def decode(self, session: bytes, command: object, step: bytes = b"") -> Frame:
        raw = command if isinstance(command, bytes) else json.dumps(command).encode()
        return self.call(Kind.DECODE, session, raw, step)

    def call(self, kind: Kind, *parts: bytes) -> Frame:
        """The one answer to a call."""
        frame = Frame(kind, 7, (struct.pack("<d", time.monotonic()), *parts))
        (self.handler.encode if kind is Kind.ENCODE else self.handler.decode)(BACKEND, frame)
        engine = self.bundle.engine
        while len(self.jobs) or engine.busy:
            self.jobs.run(1.0)
            for event in engine.step():
                assert isinstance(event, SessionReply)
                self.handler.handle(event)
        (answer,) = self.sent
        self.sent.clear()
        assert answer.request == 7
        return answer


def told(answer: Frame) -> str:
    assert answer.kind is Kind.ERROR
    return answer.parts[1].decode()


def triples(*rows: tuple[int, int, int]) -> bytes:
    return np.array(rows, "<i4").tobytes()


def test_a_session_is_opened_stepped_and_closed() -> None:
    server = Server()
    session, info = server.encode("hello", "you").parts
    assert session.startswith(b"key.")
    assert tuple(json.loads(info)) == MODEL_INFO_FIELDS
    shape, tokens, log_probs, logits = server.decode(
        session, {"do": "step", "candidates": 3}, triples((0, -1, START), (1, -1, START))
    ).parts
    assert struct.unpack("<II", shape) == (2, 3)
    assert (len(tokens), len(log_probs), len(logits)) == (24, 24, 24)
    assert server.decode(session, {"do": "text", "tokens": [[2, 3], []]}).parts[4:] == (
        Letters().decode([2, 3]).encode(),
        b"",
    )
    assert server.decode(session, {"do": "close"}).kind is Kind.ANSWER
    assert told(server.decode(session, {"do": "step", "candidates": 1}, triples((0, 0, 2)))).startswith("SESSION_LOST: ")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (b"x" * 2001, "COMMAND has 2001 bytes; this server takes 2000"),
        (b"[" * 1900, "COMMAND is not JSON"),
        (b"[]", "COMMAND must be a JSON object"),
        (b'{"do": "text", "do": "close"}', "same name twice"),
        ({"do": "dance"}, "COMMAND does 'dance'; it must do one of step, text, close"),
        ({"do": [[[]]]}, "COMMAND does (a list of 1)"),
        ({"do": "step"}, "candidates=None has the wrong type"),
        ({"do": "step", "candidates": True}, "candidates=True has the wrong type"),
        ({"do": "step", "candidates": 65}, "candidates=65 must be a whole number between 1 and 64"),
        ({"do": "step", "candidates": 10**60}, "candidates=(a number of about 60 digits)"),
        ({"do": "text", "tokens": [1]}, "tokens=1 has the wrong type"),
        ({"do": "text", "tokens": [["a"]]}, "tokens='a' has the wrong type"),
        ({"do": "text", "tokens": [[-1]]}, "token ids are between 0 and"),
        ({"do": "text", "tokens": [[5, 64]]}, "token id 64 is outside the model's vocabulary of 64"),
        ({"do": "text", "tokens": [[]] * 257}, "tokens=(a list of 257) must be a list of at most 256"),
        ({"do": "text", "tokens": [[1] * 49]}, "tokens=(a list of 49) must be"),
    ],
)
def test_impossible_commands_are_refused_with_the_reason(command: object, complaint: str) -> None:
    answer = told(Server().decode(b"key.none", command))
    assert answer.startswith("INVALID_REQUEST: ")
    assert complaint in answer


@pytest.mark.parametrize("step", [b"", b"x" * 11, triples(*[(0, -1, 1)] * 65)])
def test_a_step_that_holds_no_rows_or_too_many_is_refused(step: bytes) -> None:
    assert "it must hold int32 triples" in told(Server().decode(b"key.none", {"do": "step", "candidates": 1}, step))


def test_a_text_far_beyond_the_model_is_refused_before_it_is_tokenised() -> None:
    class Short(Letters):
        def encode(self, text: str) -> list[int]:
            assert len(text) <= 24
            return super().encode(text)

    assert "a word of 4000 characters is more than the 24 tokens" in told(Server(Short()).encode("x" * 4000))


def test_texts_are_split_into_sources_with_the_white_space_around_them() -> None:
    info = json.loads(Server().encode("  one.\n\ntwo ", prefix_text="a", prefix=[9]).parts[1])
    assert info["gaps"] == [["  ", "\n\n", " "]]
    assert info["source_tokens"] == [5, 4]
    assert info["prefix"] == [[9, *Letters().encode_target("a")], []]


def test_a_text_is_one_source_when_it_must_not_be_split() -> None:
    info = json.loads(Server().encode("one.\ntwo", split="none").parts[1])
    assert (info["gaps"], len(info["source_tokens"])) == ([["", ""]], 1)


def test_more_sentences_than_sessions_have_rows_are_refused() -> None:
    assert "a text has more than 64 sentences" in told(Server().encode("a\n" * 65))
    assert "the texts have more than 64 sentences" in told(Server().encode("a\n" * 64, "b"))


def test_a_text_of_too_many_sentences_is_not_read_to_its_end() -> None:
    tokenizer = CountingLetters()
    assert "more than 64 sentences" in told(Server(tokenizer).encode("".join(f"sentence {n}\n" for n in range(900))))
    assert tokenizer.encoded < 200


def test_calls_that_are_being_read_are_bounded() -> None:
    """A call of a few kilobytes takes megabytes while it is read."""
    server = Server()
    frames = [Frame(Kind.ENCODE, number, (struct.pack("<d", time.monotonic()), b"{}", b"a")) for number in range(129)]
    for frame in frames:
        server.handler.encode(BACKEND, frame)
    (refused,) = server.sent
    assert refused.request == 128
    assert told(refused).startswith("OVERLOADED ")
    while len(server.jobs):
        server.jobs.run(1.0)
    server.sent.clear()
    server.handler.encode(BACKEND, frames[-1])
    assert server.sent == []


def test_no_step_is_taken_for_a_backend_that_does_not_read() -> None:
    server = Server()
    session, _ = server.encode("hello").parts
    unread = cast(Channel, SimpleNamespace(backlog_bytes=MAX_FRAME_BYTES))
    command, step = json.dumps({"do": "step", "candidates": 1}).encode(), triples((0, -1, START))
    frame = Frame(Kind.DECODE, 8, (struct.pack("<d", time.monotonic()), session, command, step))
    server.handler.decode(unread, frame)
    server.jobs.run(1.0)
    assert told(server.sent[-1]).startswith("OVERLOADED ")


@pytest.mark.parametrize(
    "options", [{"on_suspicion": "report"}, {"on_suspicion": "retry"}, {"format": "html"}, {"glossary": [["a", "b"]]}]
)
def test_what_needs_the_search_of_the_server_is_refused(options: dict[str, object]) -> None:
    assert re.search("needs? the search of the server", told(Server().encode("a", **options)))


@pytest.mark.parametrize("fault", [MemoryError, RecursionError, ValueError])
@pytest.mark.parametrize("where", ["encode", "encode_target", "decode"])
def test_whatever_the_tokenizer_raises_is_an_internal_error(
    fault: type[Exception], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise fault("secret")

    tokenizer = Letters()
    server = Server(tokenizer)
    monkeypatch.setattr(tokenizer, where, fail)
    answers = [server.encode("hello", prefix_text="a"), server.decode(b"key.none", {"do": "text", "tokens": [[2]]})]
    failed = [told(answer) for answer in answers if answer.kind is Kind.ERROR]
    assert failed == ["INTERNAL: the server failed at this request; its log says why"]


@pytest.mark.parametrize("parts", [(), (b"x",), (b"s", b"{}"), (b"s", b"{}", b"", b"")])
def test_a_malformed_frame_breaks_the_protocol(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(ServeError, match="malformed"):
        Server().call(Kind.DECODE, *parts)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {"do": st.sampled_from(["step", "text", "close"]) | json_values},
        optional={
            "tokens": json_values | st.lists(st.lists(st.integers(0, 70))),
            "candidates": json_values | st.integers(1, 4),
        },
    ),
    st.binary(max_size=40),
)
def test_every_call_gets_exactly_one_answer(command: dict[str, object], step: bytes) -> None:
    server = Server()
    session, _ = server.encode("hello").parts
    answer = server.decode(session, command, step)
    assert answer.kind is Kind.ANSWER or told(answer).startswith(("INVALID_REQUEST: ", "SESSION_LOST: "))
