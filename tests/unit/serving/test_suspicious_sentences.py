"""Suspicious sentences: how they are reported, and when they are translated again."""

from __future__ import annotations

from typing import Any, cast

import pytest
from handler_server import Full, Server, alone

from dragoman.serving.engine import Sequence
from dragoman.serving.ipc.frames import Kind
from dragoman.serving.process import omission_guard


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

    def test_sentences_are_reported_only_on_request(self) -> None:
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
                raise Full
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
