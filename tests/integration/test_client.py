"""The client against a real server of the reference model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2

from dragoman.cli import main
from dragoman.client import AsyncTranslator, RetryPolicy, Translator, Window
from dragoman.client.failures import read_status
from dragoman.errors import DeadlineExceeded, InvalidRequest, ServerError, TransportError
from served import Server, eventually
from shared_sentences import SENTENCES

LONG = " ".join(["and then he told me about the old house by the river"] * 6)


def test_a_text_and_a_list_are_translated_alike(translator: Translator) -> None:
    assert translator.translate(SENTENCES[0]).text == "Wo ist der Bahnhof?"
    alone = [translator.translate(text, cache=False).text for text in SENTENCES]
    assert [one.text for one in translator.translate(SENTENCES, cache=False)] == alone


def test_a_translation_knows_its_model_score_and_timings(translator: Translator) -> None:
    result = translator.translate(SENTENCES[1], beam_size=4, num_hypotheses=3, cache=False)
    assert (result.model, result.finish, result.parts, result.cached) == ("en-de", "eos", 1, False)
    assert result.version
    assert result.source_tokens > 5
    assert result.tokens > 5
    scores = [result.score, *(other.score for other in result.alternatives)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert 0 < result.timings.first_token_ms <= result.timings.total_ms <= result.timings.round_trip_ms


def test_words_are_linked_with_their_translations(translator: Translator) -> None:
    source = "Where is the station?\n\nTom is reading a book."
    plain = translator.translate(source, cache=False, beam_size=4)
    result = translator.translate(source, alignment=True, cache=False, num_hypotheses=2, beam_size=4)
    assert (result.text, plain.alignment) == (plain.text, ())
    pairs = {(source[a.source_start : a.source_end], result.text[a.target_start : a.target_end]) for a in result.alignment}
    assert {("Where", "Wo"), ("station", "Bahnhof"), ("Tom", "Tom"), ("book", "Buch")} <= pairs
    assert all(one.alignment for one in result.alternatives)
    stream = translator.stream(SENTENCES[2], alignment=True, cache=False)
    list(stream)
    assert stream.result.alignment == translator.translate(SENTENCES[2], alignment=True).alignment


def test_many_async_calls_get_their_own_answers(server: Server, translator: Translator) -> None:
    texts = [f"Tom has {number} books." for number in range(2, 66)]

    async def everything() -> list[str]:
        async with AsyncTranslator(server.grpc) as asynchronous:
            return [one.text for one in await asyncio.gather(*(asynchronous.translate(t, cache=False) for t in texts))]

    assert asyncio.run(everything()) == [one.text for one in translator.translate(texts, cache=False)]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_stream_has_the_result_of_translate(translator: Translator, beam_size: int) -> None:
    stream = translator.stream(SENTENCES[9], beam_size=beam_size, cache=False)
    pieces = list(stream)
    assert "".join(pieces) == translator.translate(SENTENCES[9], beam_size=beam_size, cache=False).text
    assert stream.timings is not None
    assert stream.timings.total_ms > 0


def test_a_greedy_stream_comes_in_pieces(translator: Translator) -> None:
    assert len(list(translator.stream(SENTENCES[9], beam_size=1, cache=False))) > 3


def test_closing_a_stream_stops_the_work(server: Server, translator: Translator) -> None:
    def cancelled() -> float:
        return server.metrics().get('dragoman_requests_total{model="en-de",outcome="cancelled"}', 0.0)

    before = cancelled()
    with translator.stream(LONG, cache=False, min_length=120, max_length=128) as stream:
        next(stream)
    eventually(lambda: cancelled() > before)


def test_a_time_that_is_too_short_is_a_deadline(translator: Translator) -> None:
    with pytest.raises(DeadlineExceeded):
        translator.translate(LONG, timeout_s=0.03, beam_size=8, min_length=120, max_length=128, cache=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam_size": 1000}, "beam_size=1000"),
        ({"max_length": 100_000}, "max_length=100000"),
        ({"prefix": [10**6]}, "1000000"),
    ],
)
def test_what_the_server_can_not_do_is_refused_with_its_message(
    translator: Translator, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        translator.translate("hi", **options)  # type: ignore[call-overload]


def test_a_wrong_model_name_lists_the_right_one(server: Server) -> None:
    with Translator(server.grpc, model="en-xx") as translator, pytest.raises(InvalidRequest, match="en-de"):
        translator.translate("hi")


def test_languages_are_those_of_the_bundle(translator: Translator) -> None:
    assert translator.translate(SENTENCES[0], source_language="en", target_language="de").text == "Wo ist der Bahnhof?"
    with pytest.raises(InvalidRequest, match="fr"):
        translator.translate(SENTENCES[0], target_language="fr")


@pytest.mark.parametrize("options", [{"beam_size": 1000}, {"target_language": "fr"}])
def test_a_refused_stream_carries_the_reason(translator: Translator, options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=str(next(iter(options.values())))):
        list(translator.stream("hi", **options))  # type: ignore[arg-type]


def test_a_bad_text_in_a_list_is_named(translator: Translator) -> None:
    with pytest.raises(InvalidRequest, match="text 2: "):
        translator.translate(["good", "bad \x01", "good"])


def test_the_metrics_port_is_not_taken_for_a_server(server: Server) -> None:
    address = server.metrics_url.removeprefix("http://").partition("/")[0]
    with Translator(address, retry=RetryPolicy.never()) as translator, pytest.raises(TransportError, match="gRPC port"):
        translator.translate("hi")


def test_a_file_is_resumed_on_a_real_server(translator: Translator, tmp_path: Path) -> None:
    book, output = tmp_path / "book.en", tmp_path / "book.de"
    book.write_text("\n".join(SENTENCES * 5) + "\n", encoding="utf-8")

    def stop_halfway(lines: int) -> None:
        if lines == 31:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        translator.translate_file(book, output, on_progress=stop_halfway, window=Window(batch_size=4, in_flight=4))
    assert translator.translate_file(book, output).resumed_lines == 31
    assert output.read_text(encoding="utf-8").splitlines() == [one.text for one in translator.translate(SENTENCES)] * 5


def test_status_shows_a_working_server(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the metrics are, it finds out by itself."""
    assert main(["status", "--server", server.grpc, "--watch", "0.2"]) == 0
    shown, problems = capsys.readouterr()
    assert f"{server.grpc}\tready\ttriton" in shown
    assert f"{server.grpc}\ten-de\t" in shown
    assert "\ten → de\t" in shown
    assert "\t".join(["req/s", "failed/s"]) in shown
    assert problems == ""


@pytest.mark.parametrize("flags", [[], ["--stream"], ["--decoding", "client"], ["--beam", "1"]])
def test_the_command_translates(server: Server, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "Where is the station?", "--server", server.grpc, *flags]) == 0
    assert capsys.readouterr().out == "Wo ist der Bahnhof?\n"


def test_tritons_error_for_an_unknown_model_is_understood(server: Server) -> None:
    caller = server.caller()
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.ModelInfer(service_pb2.ModelInferRequest(model_name="nothing"), timeout=600)
    caller.close()
    failure = read_status(caught.value.code(), caught.value.details(), server.grpc)
    assert type(failure.error) is ServerError
    assert "does not serve dragoman" in str(failure.error)
