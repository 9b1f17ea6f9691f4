"""Tasks of requests: their prefixes and their searches."""

from __future__ import annotations

import dataclasses

import pytest
from options_reader import DEFAULTS, DIMENSIONS, LIMITS, read

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.manifest import Task, Tasks
from dragoman.errors import InvalidRequest
from dragoman.search.options import DecodingOptions
from dragoman.serving.process.options import OptionsReader

SUMMARY = DecodingOptions(beam_size=4, min_length=10, max_length=60)


TASKS = Tasks("translate English to German: ", {"summarization": Task("summarize: ", SUMMARY), "plain": Task("", DEFAULTS)})


class TestTasks:
    reader = OptionsReader(DIMENSIONS, DEFAULTS, LIMITS, LanguageResolver(), TASKS)

    @pytest.mark.parametrize(
        ("asked", "prefix", "decoding"),
        [
            ({}, "translate English to German: ", DEFAULTS),
            ({"task": "summarization"}, "summarize: ", SUMMARY),
            ({"task": "plain"}, "", DEFAULTS),
            ({"task_prefix": "sum up: "}, "sum up: ", DEFAULTS),
            ({"task_prefix": ""}, "", DEFAULTS),
            ({"task": "summarization", "task_prefix": "tl;dr: "}, "tl;dr: ", SUMMARY),
            ({"task": None, "task_prefix": None}, "translate English to German: ", DEFAULTS),
            ({"task": "summarization", "beam_size": 2}, "summarize: ", dataclasses.replace(SUMMARY, beam_size=2)),
        ],
    )
    def test_a_task_has_its_prefix_and_its_search(
        self, asked: dict[str, object], prefix: str, decoding: DecodingOptions
    ) -> None:
        options = read(asked, self.reader)
        assert (options.task_prefix, options.decoding) == (prefix, decoding)
        assert options.usual == (SUMMARY if asked.get("task") == "summarization" else DEFAULTS)

    def test_an_unknown_task_is_refused_with_those_there_are(self) -> None:
        with pytest.raises(InvalidRequest, match="task='sum' is not a task of this model; it has plain, summarization"):
            read({"task": "sum"}, self.reader)
        with pytest.raises(InvalidRequest, match="it has none; use task_prefix"):
            read({"task": "summarization"})

    @pytest.mark.parametrize(
        "asked", [{"task_prefix": "x" * 513}, {"task_prefix": "a\x00"}, {"task": 5}, {"task": ""}], ids=str
    )
    def test_an_impossible_prefix_is_refused(self, asked: dict[str, object]) -> None:
        with pytest.raises(InvalidRequest, match="task"):
            read(asked, self.reader)

    def test_a_task_with_more_beams_than_the_server_allows_is_refused(self) -> None:
        tasks = Tasks(named={"wide": Task("", DecodingOptions(beam_size=LIMITS.max_beam_size + 1))})
        with pytest.raises(InvalidRequest, match="beam_size"):
            read({"task": "wide"}, OptionsReader(DIMENSIONS, DEFAULTS, LIMITS, LanguageResolver(), tasks))

    def test_the_prefix_is_part_of_the_cache_key(self) -> None:
        asked: list[dict[str, object]] = [{}, {"task_prefix": "a"}, {"task": "summarization"}, {"task": "plain"}]
        assert len({read(each, self.reader).cache_key("x") for each in asked}) == len(asked)
