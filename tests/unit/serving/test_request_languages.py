"""Languages and tasks of requests: what goes before every part of a text."""

from __future__ import annotations

import pytest
from fake_bundle import MANIFEST, Letters
from handler_server import Server

from dragoman.bundle.languages import LanguageResolver, language_resolver
from dragoman.serving.metrics import PAIR_TEXTS
from dragoman.serving.process import request_metrics


class TestLanguages:
    MANY = language_resolver(MANIFEST, {">>deu<<": 7, ">>fra<<": 9})

    def sources(self, text: str, languages: LanguageResolver | None, **options: object) -> list[tuple[int, ...]]:
        server = Server(languages=languages)
        server.ask(1, text, **options)
        server.jobs.run(1.0)
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
        server.jobs.run(1.0)
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
