"""Paragraphs through a real server: they keep the quality of their sentences."""

from __future__ import annotations

import pytest
import sacrebleu

from dragoman.client import RequestOptions, Translator
from served import Caller, Server, eventually
from shared_files import CHECKOUT, shared_file

PARAGRAPHS, EACH = 12, 5


def in_paragraphs(texts: list[str]) -> list[str]:
    return [" ".join(texts[at : at + EACH]) for at in range(0, len(texts), EACH)]


def test_a_paragraph_keeps_the_quality_of_its_sentences(caller: Caller) -> None:
    pairs = shared_file("data/tatoeba-en-de/test.tsv")
    lines = pairs.read_text(encoding="utf-8").splitlines()[: PARAGRAPHS * EACH]
    sources, references = [line.split("\t")[0] for line in lines], [line.split("\t")[1] for line in lines]
    expected = [in_paragraphs(references)]
    one_by_one = sacrebleu.corpus_bleu(in_paragraphs(caller.translate(sources, split="none").best), expected).score
    whole = sacrebleu.corpus_bleu(caller.translate(in_paragraphs(sources)).best, expected).score
    assert whole >= 0.97 * one_by_one > 20


def test_a_paragraph_has_the_translations_of_its_sentences(caller: Caller) -> None:
    """Without references, in every checkout: what sentences lose in a paragraph is what differs from them alone."""
    sources = (CHECKOUT / "deploy" / "workload.txt").read_text(encoding="utf-8").splitlines()
    assert len(sources) >= 4 * EACH
    expected = [in_paragraphs(caller.translate(sources, split="none").best)]
    whole = caller.translate(in_paragraphs(sources)).best
    assert sacrebleu.corpus_bleu(whole, expected).score >= 97
    assert sacrebleu.corpus_bleu(caller.translate(in_paragraphs(sources), split="none").best, expected).score < 60


def test_what_a_paragraph_lost_is_translated_again_and_counted(server: Server, caller: Caller) -> None:
    """Five sentences at once, of which this model drops more than half."""
    sources = (CHECKOUT / "deploy" / "workload.txt").read_text(encoding="utf-8").splitlines()[: 4 * EACH]
    before = server.metrics()
    options = {"split": "none", "cache": False}
    reported = caller.translate(in_paragraphs(sources), on_suspicion="report", **options)
    again = caller.translate(in_paragraphs(sources), on_suspicion="retry", **options)
    first, second = ([text["sentences"][0] for text in answer.details["texts"]] for answer in (reported, again))
    suspicious = [at for at, sentence in enumerate(first) if sentence["suspicions"]]
    assert suspicious
    assert [sentence["suspicions"] for sentence in second] == [sentence["suspicions"] for sentence in first]
    replaced = [at for at, sentence in enumerate(second) if sentence["second"] == "replaced"]
    assert replaced
    assert {at for at, sentence in enumerate(second) if sentence["second"] is not None} == set(suspicious)
    assert sum(len(again.best[at]) for at in replaced) > sum(len(reported.best[at]) for at in replaced)
    assert all(again.best[at] == text for at, text in enumerate(reported.best) if at not in replaced)

    def grown(outcome: str) -> float:
        series = f'dragoman_suspicious_sentences_total{{model="en-de",outcome="{outcome}"}}'
        return server.metrics().get(series, 0) - before.get(series, 0)

    expected = {"reported": len(suspicious), "replaced": len(replaced), "kept": len(suspicious) - len(replaced)}
    eventually(lambda: all(grown(outcome) >= count for outcome, count in expected.items()))


def test_a_paragraph_is_its_sentences_with_the_spacing_between_them(caller: Caller) -> None:
    first, second, third = "Where is the station?", "It is raining.", "Thank you very much!"
    answer = caller.translate([f"  {first}  {second}\n\n\t{third}\r\n", first, second, third])
    whole, *parts = answer.best
    assert whole == f"  {parts[0]}  {parts[1]}\n\n\t{parts[2]}\r\n"
    assert answer.details["texts"][0]["parts"] == 3


def test_hypotheses_of_a_paragraph_are_made_of_those_of_its_sentences(caller: Caller) -> None:
    first, second = "Where is the station?", "It is raining."
    answer = caller.translate([f"{first} {second}", first, second], beam_size=3, num_hypotheses=3)
    whole, one, other = answer.texts
    assert whole == [f"{left} {right}" for left, right in zip(one, other, strict=True)]
    counts, scores = answer.token_counts, answer.scores
    assert counts[0] == [left + right for left, right in zip(counts[1], counts[2], strict=True)]
    weighted = [(scores[1][n] * counts[1][n] + scores[2][n] * counts[2][n]) / counts[0][n] for n in range(3)]
    assert scores[0] == pytest.approx(weighted, rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "num_hypotheses": 2}, {"prefix_text": "Wo"}, {"split": "line"}])
def test_client_driven_decoding_splits_and_joins_as_the_server_does(server: Server, options: RequestOptions) -> None:
    text = "  Where is the station?  It is raining.\n\n\tThank you!\n"
    with Translator(server.grpc) as here, Translator(server.grpc, decoding="client") as there:
        one, other = here.translate(text, cache=False, **options), there.translate(text, **options)
    assert (other.text, other.tokens, other.parts, other.finish) == (one.text, one.tokens, one.parts, one.finish)
    assert [each.text for each in other.alternatives] == [each.text for each in one.alternatives]
    assert other.score == pytest.approx(one.score, rel=1e-4)
