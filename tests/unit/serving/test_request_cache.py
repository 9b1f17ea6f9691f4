"""Answers from the response cache."""

from __future__ import annotations

import pytest
from handler_server import Server


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
    def test_whatever_changes_the_answer_is_part_of_the_cache_key(self, change: dict[str, object]) -> None:
        server = Server()
        server.ask(1, "hello")
        server.finish()
        server.ask(2, "hello", **change)
        assert not server.finish().details(2)["texts"][0]["cached"]

    def test_a_request_longer_than_its_answer_is_not_cached(self) -> None:
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
