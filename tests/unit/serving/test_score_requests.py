"""SCORE frames on an engine with a fake model, and the texts of tokens."""

from __future__ import annotations

import json
import struct
from typing import cast

import pytest
from fake_bundle import MANIFEST, VOCABULARY, Letters, fake_bundle
from handler_server import Server

from dragoman.errors import InvalidRequest
from dragoman.serving.engine import Engine, ForcedTarget, Sequence
from dragoman.serving.in_process import model_facts
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.process.scoring import Scoring
from dragoman.serving.text.alternatives import token_texts
from fake_runtime import FakeRuntime


class FakeTarget:
    def __init__(self, *log_probs: float) -> None:
        self.tokens, self.log_probs = tuple(range(2, 2 + len(log_probs))), log_probs


def scores(server: Server, number: int) -> list[list[tuple[str, float]]]:
    return [[tuple(token) for token in text["tokens"]] for text in server.details(number)["texts"]]


def test_scores_are_independent_of_batch() -> None:
    pairs = [(f"source {at}", "target" * (1 + at % 3) + chr(97 + at)) for at in range(24)]
    expected = []
    for source, target in pairs:
        server = Server()
        server.ask(1, source, target, kind=Kind.SCORE)
        expected += scores(server.finish(), 1)
    assert len({str(each) for each in expected}) == len(pairs)
    server = Server()
    for at in range(8):
        server.ask(100 + at, f"a translation {at}", alignment=True)
    server.ask(1, *(source for source, _ in pairs), *(target for _, target in pairs), kind=Kind.SCORE)
    assert scores(server.finish(), 1) == expected
    assert server.texts(1) == [target for _, target in pairs]
    answer = server.last_answers(1)[0]
    totals = struct.unpack(f"<{len(pairs)}f", answer.parts[2])
    assert totals == pytest.approx([sum(each for _, each in one) for one in expected], abs=1e-4)


def test_scores_are_not_cached() -> None:
    server = Server()
    for number in (1, 2):
        server.ask(number, "hello", "world", kind=Kind.SCORE)
        server.finish()
        assert not server.details(number)["texts"][0]["cached"]
    server.ask(3, "hello")
    assert server.finish().texts(3) != ["world"]


def test_a_bad_target_is_the_answer_of_its_request_alone() -> None:
    server = Server()
    server.ask(1, "one", "two", "good", "far too long for this model", kind=Kind.SCORE)
    server.ask(2, "one", "good", kind=Kind.SCORE)
    server.finish()
    assert server.error(1) == (
        "INVALID_REQUEST: target 1 has 28 tokens; the model takes 24 tokens: score its sentences one by one"
    )
    assert server.texts(2) == ["good"]
    assert server.handler.open_requests == 0


def test_targets_of_a_caller_that_disconnects_are_dropped() -> None:
    server = Server()
    server.ask(1, *["text"] * 40, *["target"] * 40, kind=Kind.SCORE)
    server.turn()
    server.handler.cancel(cast(Channel, "backend"), 1)
    server.finish()
    assert (server.handler.open_requests, server.engine.busy) == (0, False)


def test_one_request_has_few_targets_in_the_engine() -> None:
    """So that whoever comes next waits for few of them."""
    server = Server()
    server.ask(1, *["a source of text"] * 200, *["target"] * 200, kind=Kind.SCORE)
    most = 0
    while server.handler.open_requests:
        server.turn()
        most = max(most, *(len(each.sequences) for each in server.handler._requests.values()), 0)
    assert len(server.texts(1)) == 200
    assert most < 40


def test_a_model_without_the_graph_refuses() -> None:
    runtime = FakeRuntime(VOCABULARY)
    runtime.forced = None
    server = Server(engine=Engine(runtime, model_facts(MANIFEST)))
    server.ask(1, "one", "two", kind=Kind.SCORE)
    assert "nothing to score and align with" in server.finish().error(1)


@pytest.mark.parametrize("name", ["beam_size", "max_length", "alignment", "on_suspicion", "placeholders", "prefix_text"])
def test_options_of_a_search_are_refused(name: str) -> None:
    values: dict[str, object] = {"alignment": False, "placeholders": True, "prefix_text": "", "on_suspicion": "report"}
    server = Server()
    server.ask(1, "one", "two", kind=Kind.SCORE, **{name: values.get(name, 4)})
    assert server.error(1).startswith(f"INVALID_REQUEST: {name} makes no sense with TARGET")


def test_a_forced_first_token_is_a_part_of_the_target() -> None:
    server = Server()
    server.ask(1, "one", "two", kind=Kind.SCORE, forced_bos=1)
    ((first, *others),) = scores(server.finish(), 1)
    assert first[0] == ""
    assert "".join(text for text, _ in others) == Letters().decode(Letters().encode_target("two"))


def test_another_start_token_makes_other_scores() -> None:
    server = Server()
    server.ask(1, "one", "two", kind=Kind.SCORE)
    server.ask(2, "one", "two", kind=Kind.SCORE, decoder_start=5)
    server.finish()
    assert scores(server, 1) != scores(server, 2)


def test_a_token_outside_of_the_shortlist_is_named() -> None:
    sequence = Sequence((3, 4, 0))
    sequence.forced = (cast(ForcedTarget, FakeTarget(-1.0, float("-inf"), -2.0)),)
    with pytest.raises(InvalidRequest, match=r"target 7 has token 3 \('c'\), which this bundle can't generate"):
        Scoring(fake_bundle()).take(sequence, "target 7")


def test_a_frame_with_an_odd_number_of_strings_is_an_error() -> None:
    server = Server()
    server.ask(1, "one", "two", "three", kind=Kind.SCORE)
    (answer,) = server.last_answers(1)
    assert answer == Frame(Kind.ERROR, 1, (b"INTERNAL", answer.parts[1]))


class Bytes(Letters):
    """A token a byte."""

    def decode(self, ids: list[int]) -> str:
        return bytes(index for index in ids if index).decode(errors="ignore")

    def target_spans(self, ids: list[int]) -> list[tuple[int, int]]:
        from dragoman.bundle.spans import spans_by_decoding

        return spans_by_decoding(self.decode, list(ids))


@pytest.mark.parametrize("text", ["word " * 60, "ä🙂 x" * 50, "a", "🙂"])
def test_texts_of_tokens_joined_are_the_text(text: str) -> None:
    texts = token_texts(Bytes(), [*text.encode(), 0])
    assert len(texts) == len(text.encode()) + 1
    assert "".join(texts) == text
    assert json.loads(json.dumps(texts)) == texts
