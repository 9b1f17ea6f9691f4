"""A real server, called as any Triton client would."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import grpc
import pytest

from served import Caller, Server, StreamError, eventually, outputs, request

SENTENCES = ["Where is the station?", "I have never seen such a beautiful city.", "Tom is reading a book.", "It is raining."]


class TestTranslate:
    def test_answers_in_the_order_of_the_texts(self, caller: Caller) -> None:
        together = caller.translate(SENTENCES, cache=False).best
        assert together == [caller.translate([sentence], cache=False).best[0] for sentence in SENTENCES]

    def test_returns_as_many_hypotheses_as_requested_best_first(self, caller: Caller) -> None:
        answer = caller.translate(SENTENCES[:2], beam_size=4, num_hypotheses=3)
        assert [len(row) for row in answer.texts] == [3, 3]
        assert all(scores == sorted(scores, reverse=True) for scores in answer.scores)

    def test_returns_the_timings_of_a_text(self, caller: Caller) -> None:
        answer = caller.translate([SENTENCES[0]], request_id="mine", cache=False)
        assert (answer.details["model"], answer.details["request_id"]) == ("en-de", "mine")
        (text,) = answer.details["texts"]
        assert 0 <= text["queue_ms"] <= text["first_token_ms"] <= text["total_ms"]
        assert text["steps"] >= answer.token_counts[0][0] > 1
        assert (text["finish"], text["parts"], text["cached"]) == ("eos", 1, False)

    def test_begins_with_the_forced_words(self, caller: Caller) -> None:
        assert caller.translate(["I live in Boston."], prefix_text="Ich wohne").best[0].startswith("Ich wohne")

    def test_needs_no_options(self, caller: Caller) -> None:
        response = caller.stub.ModelInfer(request("translate", [SENTENCES[0]], {}), timeout=600)
        assert caller.answer(response).best == caller.translate([SENTENCES[0]]).best

    def test_returns_only_the_requested_outputs(self, caller: Caller) -> None:
        message = request("translate", [SENTENCES[0]], {})
        message.outputs.add(name="TRANSLATION")
        assert list(outputs(caller.stub.ModelInfer(message, timeout=600))) == ["TRANSLATION"]

    def test_many_callers_at_once_get_their_own_answers(self, caller: Caller) -> None:
        texts = [f"Tom has {number} books." for number in range(2, 34)]
        alone = [caller.translate([text], cache=False).best for text in texts]
        together = [caller.translate_later([text], cache=False) for text in texts]
        assert [caller.answer(future.result()).best for future in together] == alone


class TestDocuments:
    def test_keep_their_lines_and_spaces(self, caller: Caller) -> None:
        first, second = "It is raining.", "Where is the station?"
        alone = [caller.translate([text]).best[0] for text in (first, second)]
        (said,) = caller.translate([f"  {first}\n\n\t{second}\n"]).best
        assert said == f"  {alone[0]}\n\n\t{alone[1]}\n"

    def test_are_one_text_of_many_parts(self, caller: Caller) -> None:
        answer = caller.translate(["It is raining.\n" * 300], cache=False)
        assert answer.details["texts"][0]["parts"] == 300
        assert answer.best == [(caller.translate(["It is raining."]).best[0] + "\n") * 300]

    def test_longer_than_the_model_are_never_cut(self, caller: Caller) -> None:
        sentence = "Tom is reading a book in the garden. "
        answer = caller.translate([sentence * 120], cache=False)
        assert answer.details["texts"][0]["parts"] == 120
        assert answer.best[0].count("Tom") >= 120

    def test_a_sentence_that_is_too_long_is_split_or_refused_as_requested(self, caller: Caller) -> None:
        endless = "and then he said, " * 400
        assert caller.translate([endless], cache=False).details["texts"][0]["parts"] > 1
        with pytest.raises(grpc.RpcError, match="a text of 7199 characters has more tokens than the model takes"):
            caller.translate([endless], split="none")

    def test_stream_in_their_own_order(self, caller: Caller) -> None:
        text = "Tom is reading a book in the garden.\nIt is raining.\n\nWhere is the station?"
        chunks = [response["chunk"] for response in caller.stream(text, cache=False)]
        assert ["".join(chunks)] == caller.translate([text], cache=False).best
        assert len(chunks) > 3


class TestResponseCache:
    def test_a_repeated_text_is_answered_from_it(self, caller: Caller) -> None:
        first = caller.translate(["The weather is fine today."])
        again = caller.translate(["The weather is fine today."])
        assert again.details["texts"][0]["cached"]
        assert (again.texts, again.scores, again.token_counts) == (first.texts, first.scores, first.token_counts)

    def test_other_options_are_not_answered_from_the_cache(self, caller: Caller) -> None:
        caller.translate(["The weather was fine yesterday."], beam_size=1)
        assert not caller.translate(["The weather was fine yesterday."], beam_size=2).details["texts"][0]["cached"]

    def test_a_caller_may_decline_it(self, caller: Caller) -> None:
        caller.translate(["She opened the window."])
        assert not caller.translate(["She opened the window."], cache=False).details["texts"][0]["cached"]


class TestStream:
    @pytest.mark.parametrize("beam_size", [1, 4])
    def test_chunks_joined_are_the_translation(self, caller: Caller, beam_size: int) -> None:
        text = "The old man and his dog walked slowly along the river."
        responses = list(caller.stream(text, beam_size=beam_size, cache=False))
        joined = "".join(response["chunk"] for response in responses)
        assert [joined] == caller.translate([text], beam_size=beam_size, cache=False).best

    def test_only_the_last_response_is_final_and_has_the_details(self, caller: Caller) -> None:
        *others, last = caller.stream("He was born in a small town.", request_id="s1", cache=False)
        assert last["final"]
        assert last["details"]["request_id"] == "s1"
        assert others
        assert not any(response["final"] or response["details"] for response in others)

    def test_a_known_text_comes_in_one_piece(self, caller: Caller) -> None:
        expected = caller.translate(["We are going home now."]).best
        responses = list(caller.stream("We are going home now."))
        assert [response["chunk"] for response in responses] == expected

    def test_a_refused_stream_carries_the_reason(self, caller: Caller) -> None:
        with pytest.raises(StreamError, match="INVALID_REQUEST: unknown option"):
            list(caller.stream("Hello.", no_such_option=1))


class TestClientDrivenDecoding:
    def greedy(self, caller: Caller, text: str) -> list[int]:
        session, info = caller.encode([text])
        token, tokens = info["tokens"]["decoder_start"], []
        for step in range(info["max_target_tokens"]):
            answer = caller.decode(session, {"do": "step", "candidates": 2}, [(0, 0 if step else -1, token)])
            # The reference model never generates its padding token.
            token = next(int(best) for best in answer["BEST_TOKENS"][0] if best != info["tokens"]["pad"])
            tokens.append(token)
            if token == info["tokens"]["eos"]:
                break
        (said,) = caller.decode(session, {"do": "text", "tokens": [tokens]})["DECODED"]
        caller.decode(session, {"do": "close"})
        self.said = said.decode()
        return tokens

    def test_a_greedy_search_by_the_client_equals_that_of_the_server(self, caller: Caller) -> None:
        for sentence in SENTENCES:
            self.greedy(caller, sentence)
            assert [self.said] == caller.translate([sentence], beam_size=1).best

    def test_a_closed_session_is_gone(self, caller: Caller) -> None:
        session, _ = caller.encode(["Hello."])
        caller.decode(session, {"do": "close"})
        with pytest.raises(grpc.RpcError) as refused:
            caller.decode(session, {"do": "step", "candidates": 1}, [(0, -1, 0)])
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert refused.value.details().startswith("SESSION_LOST: ")

    def test_names_of_sessions_are_unguessable(self, caller: Caller) -> None:
        session, _ = caller.encode(["Hello."])
        other, _ = caller.encode(["Hello."])
        assert len(session) > 24
        assert session != other


class TestTriton:
    def test_is_ready(self, caller: Caller) -> None:
        from tritonclient.grpc import service_pb2

        assert caller.stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=600).ready

    @pytest.mark.parametrize(
        "call",
        [
            "SystemSharedMemoryStatus",
            "CudaSharedMemoryStatus",
            "RepositoryIndex",
            "RepositoryModelUnload",
            "TraceSetting",
            "LogSettings",
        ],
    )
    def test_keeps_its_admin_endpoints_closed(self, caller: Caller, call: str) -> None:
        from tritonclient.grpc import service_pb2

        kind = getattr(service_pb2, f"{call}Request")
        with pytest.raises(grpc.RpcError) as refused:
            getattr(caller.stub, call)(kind(), timeout=600)
        assert "restricted" in refused.value.details()


def settled(counts: Callable[[], tuple[float, ...]]) -> tuple[float, ...] | None:
    """What is counted, when it stands still for longer than the second after which an engine reports; that may be late."""
    first, until_s = counts(), time.monotonic() + 2.5
    while time.monotonic() < until_s:
        if counts() != first:
            return None
        threading.Event().wait(0.05)
    return first


class TestMetrics:
    def test_requests_are_counted_by_outcome(self, server: Server, caller: Caller) -> None:
        def count(outcome: str) -> float:
            return server.metrics().get(f'dragoman_requests_total{{model="en-de",outcome="{outcome}"}}', 0)

        ok, invalid = count("ok"), count("invalid")
        caller.translate(["One more sentence to count."])
        with pytest.raises(grpc.RpcError):
            caller.translate([""])
        eventually(lambda: count("ok") >= ok + 1 and count("invalid") >= invalid + 1)

    def test_token_metrics_equal_the_counts_in_the_answers(self, server: Server, caller: Caller) -> None:
        def counts() -> tuple[float, ...]:
            metrics = server.metrics()
            names = ("source_tokens_total", "target_tokens_total", "texts_total")
            return tuple(metrics.get(f'dragoman_{name}{{model="en-de"}}', 0) for name in names)

        before = eventually(lambda: settled(counts))
        answer = caller.translate(SENTENCES, cache=False, beam_size=1)
        source = sum(text["source_tokens"] for text in answer.details["texts"])
        target = sum(text["target_tokens"] for text in answer.details["texts"])
        assert target == sum(row[0] for row in answer.token_counts)
        expected = tuple(old + new for old, new in zip(before, (source, target, len(SENTENCES)), strict=True))
        eventually(lambda: counts() == expected)

    def test_hits_and_misses_of_the_response_cache_are_counted(self, server: Server, caller: Caller) -> None:
        def counts() -> tuple[float, ...]:
            metrics = server.metrics()
            return tuple(
                metrics.get(f'dragoman_response_cache_{what}_total{{model="en-de"}}', 0) for what in ("hits", "misses")
            )

        hits, misses = eventually(lambda: settled(counts))
        for _ in range(3):
            caller.translate(["A sentence that nobody has sent before."])
        eventually(lambda: counts() == (hits + 2, misses + 1))

    @pytest.mark.parametrize(
        "series",
        [
            "dragoman_queue_seconds_bucket",
            "dragoman_queue_seconds_sum",
            "dragoman_first_token_seconds_count",
            "dragoman_token_seconds_count",
            "dragoman_request_seconds_count",
            "dragoman_source_tokens_total",
            "dragoman_target_tokens_total",
            "dragoman_padding_tokens_total",
            "dragoman_refusals_total",
            "dragoman_steps_total",
            "dragoman_step_rows_total",
            "dragoman_calls_at_once",
            "dragoman_batch_occupancy",
            "dragoman_cache_used_ratio",
            "dragoman_queued_requests",
            "dragoman_sessions",
            "dragoman_restarts_total",
        ],
    )
    def test_a_scrape_has(self, server: Server, caller: Caller, series: str) -> None:
        caller.translate(["A sentence that makes numbers."], cache=False)
        eventually(lambda: any(name.startswith(series) for name in server.metrics()))

    def test_a_histogram_is_one_to_prometheus(self, server: Server, caller: Caller) -> None:
        caller.translate(["A sentence that is timed."], cache=False)

        def buckets() -> list[float]:
            metrics = server.metrics()
            labels = ("0.001", "0.01", "0.1", "1", "10", "+Inf")
            return [metrics.get(f'dragoman_request_seconds_bucket{{le="{le}",model="en-de"}}', 0) for le in labels]

        counts = eventually(lambda: buckets() if buckets()[-1] else None)
        assert counts == sorted(counts)


class TestLog:
    def test_nothing_of_a_text_is_ever_logged(self, server: Server, caller: Caller) -> None:
        with pytest.raises(grpc.RpcError):
            caller.translate(["Schmetterling\x00"], request_id="Schmetterling-1")
        caller.translate(["Schmetterling"], request_id="quiet")
        assert not [line for line in server.log if "Schmetterling" in line]

    def test_lines_are_json(self, server: Server) -> None:
        for line in list(server.log):
            json.loads(line)
