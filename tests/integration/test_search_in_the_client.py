"""Searches that run in the client, on a real server of the reference model."""

from __future__ import annotations

import numpy as np
import pytest

from dragoman.client import ClientDecoding, Step, Translator
from served import Server, eventually
from shared_sentences import SENTENCES


def tokens_and_scores(translator: Translator, **options: object) -> list[list[tuple[str, int, float]]]:
    found = translator.translate(SENTENCES, cache=False, **options)  # type: ignore[call-overload]
    return [
        [(one.text, one.tokens, pytest.approx(one.score, abs=2e-4)) for one in (result, *result.alternatives)]
        for result in found
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 4, "num_hypotheses": 4},
        {"beam_size": 3, "length_penalty": 0.3, "no_repeat_ngram_size": 2, "early_stopping": "never"},
        {"repetition_penalty": 1.2},
        {"sampling": True, "beam_size": 1, "top_k": 20, "temperature": 0.8, "seed": 5},
        {"prefix_text": "Ich", "beam_size": 4},
    ],
)
def test_decoding_in_the_client_finds_what_the_server_finds(
    server: Server, translator: Translator, options: dict[str, object]
) -> None:
    with Translator(server.grpc, decoding="client") as ours:
        assert tokens_and_scores(ours, **options) == tokens_and_scores(translator, **options)


def test_client_sessions_are_closed(server: Server) -> None:
    def open_sessions() -> float:
        return server.metrics().get('dragoman_sessions{model="en-de"}', 0.0)

    before = open_sessions()  # of other tests, which may leave theirs to time out
    with Translator(server.grpc, decoding="client") as ours:
        ours.translate(SENTENCES)
    eventually(lambda: open_sessions() <= before)


def test_a_model_is_an_ensemble_with_itself(server: Server, translator: Translator) -> None:
    with Translator(server.grpc, decoding=ClientDecoding(ensemble=["en-de"])) as ours:
        assert tokens_and_scores(ours, beam_size=4) == tokens_and_scores(translator, beam_size=4)


def test_a_processor_can_forbid_the_best_word(server: Server, translator: Translator) -> None:
    usual = translator.translate(SENTENCES[0])
    first_of_each_row: list[int] = []

    def never_that_token(step: Step) -> np.ndarray:
        if step.history.shape[1] == 0:
            first_of_each_row.append(int(step.best.tokens[0, 0]))
        return np.where(step.best.tokens == first_of_each_row[0], -np.inf, step.best.log_probs)

    with Translator(server.grpc, decoding=ClientDecoding(processor=never_that_token, candidates=8)) as ours:
        assert ours.translate(SENTENCES[0]).text.split()[0] != usual.text.split()[0]
