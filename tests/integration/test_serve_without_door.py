"""Where the door can't be built, Triton's Python stubs take the requests; callers see no difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from dragoman import native
from served import Caller, Server, eventually, outputs, request

SENTENCES = ["Where is the station?", "Tom has never been there before.", "It is raining."]
needs_door = pytest.mark.skipif(native.backend_library() is None, reason="the door is not built: there is no C++ compiler")


@pytest.fixture(scope="module")
def in_python(reference_bundle: Path) -> Iterator[Server]:
    with Server.start([f"en-de={reference_bundle}"], "--no-door") as server:
        yield server


@pytest.fixture
def callers(server: Server, in_python: Server) -> Iterator[tuple[Caller, Caller]]:
    pair = server.caller(), in_python.caller()
    yield pair
    for caller in pair:
        caller.close()


def same(callers: tuple[Caller, Caller], ask: Any) -> Any:
    """What both say."""
    one, other = (ask(caller) for caller in callers)
    assert one == other
    return one


def refusal(caller: Caller, *message: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        caller.stub.ModelInfer(request(*message), timeout=30)
    return refused.value.code(), refused.value.details()


@needs_door
def test_the_door_has_no_stubs(server: Server, in_python: Server) -> None:
    assert server.children()["stub"] == []
    assert len(in_python.children()["stub"]) == 4


def test_translations_are_the_same(callers: tuple[Caller, Caller]) -> None:
    def ask(caller: Caller) -> Any:
        answer = caller.translate(SENTENCES, beam_size=4, num_hypotheses=2, cache=False)
        return answer.texts, answer.scores, answer.token_counts

    texts, _, _ = same(callers, ask)
    assert [len(hypotheses) for hypotheses in texts] == [2, 2, 2]


def test_only_the_outputs_that_were_asked_for_come_back(callers: tuple[Caller, Caller]) -> None:
    message = request("translate", SENTENCES[:1], {"cache": False})
    message.outputs.add(name="SCORE")
    assert same(callers, lambda caller: list(outputs(caller.stub.ModelInfer(message, timeout=30)))) == ["SCORE"]


def test_streams_are_the_same(callers: tuple[Caller, Caller]) -> None:
    chunks = same(callers, lambda caller: [each["chunk"] for each in caller.stream(SENTENCES[1], beam_size=1, cache=False)])
    assert len(chunks) > 1


def test_client_driven_decoding_is_the_same(callers: tuple[Caller, Caller]) -> None:
    def ask(caller: Caller) -> Any:
        session, info = caller.encode([SENTENCES[0]])
        first = caller.decode(session, {"do": "step", "candidates": 3}, [(0, -1, info["tokens"]["decoder_start"])])
        said = caller.decode(session, {"do": "text", "tokens": [first["BEST_TOKENS"][0].tolist()]})["DECODED"].tolist()
        caller.decode(session, {"do": "close"})
        return first["BEST_TOKENS"].tolist(), first["BEST_LOGITS"].tolist(), said

    same(callers, ask)


@pytest.mark.parametrize(
    "message",
    [
        ("translate", ["\x07"], {}),
        ("translate", ["hello"], {"beam_size": 1000}),
        ("translate", ["hello"], b"{"),
        ("translate", [], {}),
    ],
)
def test_refusals_are_the_same(callers: tuple[Caller, Caller], message: tuple[Any, ...]) -> None:
    code, _ = same(callers, lambda caller: refusal(caller, *message))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


@needs_door
def test_with_the_door_tritons_own_statistics_know_how_long_a_request_took(callers: tuple[Caller, Caller]) -> None:
    caller, asked = callers[0], service_pb2.ModelStatisticsRequest(name="translate")

    def measured() -> tuple[int, float]:
        (model,) = caller.stub.ModelStatistics(asked, timeout=10).model_stats
        return model.inference_stats.success.count, model.inference_stats.compute_infer.ns / 1e6

    count, spent_ms = measured()
    details = caller.translate(SENTENCES, cache=False).details
    took_ms = max(text["total_ms"] for text in details["texts"])
    assert eventually(lambda: measured()[0] > count)
    assert measured()[1] - spent_ms > 0.9 * took_ms
