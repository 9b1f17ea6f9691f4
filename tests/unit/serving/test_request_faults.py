"""Whatever a tokenizer, an engine or a caller does wrong, every request gets exactly one last answer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

import pytest
from fake_bundle import MANIFEST, VOCABULARY, Letters
from handler_server import Full, Server, alone
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import ServeError, ServerError
from dragoman.serving.engine import Engine, EngineLimits, Sequence
from dragoman.serving.in_process import model_facts
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.process.answers import Replies
from fake_runtime import FakeRuntime


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
    """Any error while a request is handled is the answer of that request, and of no other."""

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
        kinds += [ValueError, MemoryError, RecursionError, ServerError, Full]
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
