"""How much of the engine one request gets beside others."""

from __future__ import annotations

from typing import cast

import pytest
from handler_server import Server, alone, owners

from dragoman.serving.engine import EngineLimits
from dragoman.serving.ipc.channel import Channel


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
        server.jobs.run(1.0)
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
        server.jobs.run(0.0)  # one step: the document's
        server.jobs.run(0.0)  # and the other's
        server.engine.step()
        assert any(part.request.number == 2 for part in owners(server.engine))


def test_long_texts_are_split_a_few_at_a_time() -> None:
    server = Server()
    pages = [("word. " * 50_000)[: 80_000 - number] for number in range(20)]
    for number, page in enumerate(pages):
        server.ask(number, page, cache=False)
    most = 0
    while len(server.jobs) and not server.engine.busy:
        server.jobs.run(0.0)
        most = max(most, server.handler.planned_characters)
    server.ask(99, "A short one.", cache=False)
    for number in range(len(pages)):
        server.handler.cancel(cast(Channel, "backend"), number)
    server.finish()
    assert 300_000 < most <= 1 << 19
    assert server.texts(99) == [alone("A short one.")]
    assert server.handler.planned_characters == 0


class TestAlignedHypotheses:
    """What links words takes long for long hypotheses, and so is done for one at a time."""

    def searched(self) -> Server:
        """A server that has generated the hypotheses, and has them to link."""
        server = Server()
        server.ask(1, "Hello you.", alignment=True, beam_size=4, num_hypotheses=4)
        server.turn()
        for _ in range(200):
            if not server.engine.busy:
                break
            server.turn()
        assert not server.engine.busy
        return server

    def test_are_linked_one_per_step(self) -> None:
        server = self.searched()
        before = server.jobs.steps_done
        server.finish()
        assert server.jobs.steps_done - before == 3
        links = server.details(1)["texts"][0]["alignment"]
        assert len(links) == 4
        for rank, text in enumerate(server.texts(1)):
            assert all(0 <= link[2] < link[3] <= len(text) for link in links[rank])

    def test_of_a_caller_that_disconnected_are_not_linked(self) -> None:
        server = self.searched()
        server.handler.cancel(cast(Channel, "backend"), 1)
        server.finish()
        (answer,) = server.last_answers(1)
        assert answer.parts[0] == b"CANCELLED"
