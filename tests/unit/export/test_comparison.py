from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import VerificationCase
from dragoman.errors import VerificationError
from dragoman.export.verification import comparison
from dragoman.export.verification.answers import Answer, Answers, FloatArray, IntArray
from dragoman.export.verification.comparison import Judge
from dragoman.export.verification.corpus import Corpus
from dragoman.export.verification.quality import score
from dragoman.search.options import DecodingOptions

VOCABULARY = 32


class Letters:
    """A tokenizer of letters: a is 1, b is 2; 0 ends."""

    def encode(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        assert (source, target) == (None, None), "letters have no language"
        return [*self.encode_target(text), 0]

    def encode_target(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text if letter.isalpha()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(chr(96 + token) for token in ids if token)  # a word each: BLEU counts words


class Echo:
    """Says its source backwards, certain of every token; `slip` changes what it says."""

    name = "an echo"

    def __init__(self, slip: dict[tuple[int, ...], tuple[int, ...]] | None = None, certainty: float = 9.0) -> None:
        self._slip, self._certainty = slip or {}, certainty
        self.batches: list[int] = []

    def generate(self, sources: Sequence[Sequence[int]], options: DecodingOptions) -> list[tuple[int, ...]]:
        self.batches.append(len(sources))
        return [self._said(tuple(source)) for source in sources]

    def log_probs(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        logits = np.zeros((len(target), VOCABULARY), np.float32)
        said = self._said(tuple(source))
        for step in range(min(len(said), len(target))):
            logits[step, said[step]] = self._certainty
        result: FloatArray = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return result

    def forced(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> tuple[IntArray, FloatArray]:
        every = self.log_probs(source, target)
        best = np.argsort(-every, axis=1, kind="stable")[:, :4]
        return best, np.take_along_axis(every, best, axis=1)

    def _said(self, source: tuple[int, ...]) -> tuple[int, ...]:
        return self._slip.get(source, (*source[-2::-1], 0))


class Graphs:
    """What an echo says, as exported graphs say it: with a score."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self.forced = echo.forced

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        language: LanguageTokens = NO_LANGUAGE_TOKENS,
    ) -> Answers:
        said = self._echo.generate(sources, options)
        return [Answer(tokens, self._score(source, tokens)) for source, tokens in zip(sources, said, strict=True)]

    def scored(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        return self._echo.log_probs(source, target)[np.arange(len(target)), list(target)]

    def _score(self, source: Sequence[int], tokens: tuple[int, ...]) -> float:
        steps = self._echo.log_probs(source, tokens)
        return float(steps[np.arange(len(tokens)), list(tokens)].mean())


def _judge(original: Echo, *sentences: str, references: Sequence[Sequence[str]] | None = None) -> Judge:
    given = tuple(tuple(several) for several in references or [()] * len(sentences))
    options = DecodingOptions(beam_size=4)
    return Judge(lambda: original, Letters(), Corpus(sentences, given), options, max_source_tokens=64, vocabulary=VOCABULARY)


def _cases(judge: Judge, exported: Echo) -> list[VerificationCase]:
    output = judge.run(Graphs(exported), "portable", lambda share: None)
    return list(judge.cases(output, lambda share: None))


WORDS = ("abc", "de", "fghij", "klmno", "pq", "rstuv", "wxyz")


def test_identical_graphs_pass_every_case() -> None:
    judge = _judge(Echo(), *WORDS)
    cases = _cases(judge, Echo())
    names = ["greedy, batch 1", "greedy, batch 32", "beam 4, batch 1", "beam 4, batch 32", "forced tokens", "whole targets"]
    assert [case.name for case in cases] == names
    assert all(case.identical == case.sentences > 0 for case in cases)
    verdict = judge.verdict(cases, "fp32", None)
    assert verdict.quality_loss == 0.0
    assert verdict.reference == "an echo"


def test_sentences_are_decoded_alone_and_together() -> None:
    exported = Echo()
    _cases(_judge(Echo(), *WORDS), exported)
    assert {1, len(WORDS)} == set(exported.batches)


def test_the_original_is_run_once_for_all_lowerings() -> None:
    original = Echo()
    judge = _judge(original, *WORDS)
    _cases(judge, Echo())
    asked = len(original.batches)
    _cases(judge, Echo())
    assert len(original.batches) == asked


def test_logits_of_a_large_vocabulary_are_computed_for_a_few_sentences_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LOGITS_BYTES", 4 * VOCABULARY * 12)  # rows: greedy 12 sentences, beam 4 three
    original, exported = Echo(), Echo()
    cases = _cases(_judge(original, *WORDS), exported)
    assert all(case.identical == case.sentences for case in cases)
    assert len(WORDS) in exported.batches
    together = [size for size in original.batches if size > 1]
    assert together == [len(WORDS), 3, 3]


def test_one_wrong_token_in_fp32_fails_the_export() -> None:
    judge = _judge(Echo(), *WORDS)
    slipped = Echo({(1, 2, 3, 0): (3, 2, 2, 0)})
    with pytest.raises(VerificationError, match=r"fp32 graphs differ from an echo \(portable greedy, batch 1: 1"):
        judge.verdict(_cases(judge, slipped), "fp32", None)


def test_a_difference_that_rounding_decides_is_a_tie() -> None:
    undecided = Echo(certainty=1e-6)  # the original finds all tokens equally good
    judge = _judge(undecided, *WORDS)
    cases = _cases(judge, Echo({(1, 2, 3, 0): (3, 2, 2, 0)}, certainty=1e-6))
    assert sum(case.ties for case in cases) > 0
    judge.verdict(cases, "fp32", None)


def test_lower_precisions_may_lose_as_much_as_allowed_and_no_more() -> None:
    judge = _judge(Echo(), *WORDS)
    cases = _cases(judge, Echo({(1, 2, 3, 0): (3, 2, 2, 0)}))
    loss = judge.verdict(cases, "int8", 100.0).quality_loss
    assert loss > 0
    with pytest.raises(VerificationError, match=r"int8 loses .* chrF points against the original.*--verify-file"):
        judge.verdict(cases, "int8", loss / 2)


def test_with_references_the_loss_is_in_bleu_against_them() -> None:
    sentences = ["abcdefgh", "ijklmnop"]
    judge = _judge(Echo(), *sentences, references=[["h g f e d c b a"], ["p o n m l k j i"]])
    same = judge.verdict(_cases(judge, Echo()), "int8", None)
    assert same.scored_against == "references"
    assert same.quality_loss == 0.0
    wrong = _cases(judge, Echo({tuple(Letters().encode("abcdefgh")): (1, 1, 0)}))
    with pytest.raises(VerificationError, match="BLEU points against the references"):
        judge.verdict(wrong, "int8", None)


def test_a_smaller_difference_of_log_probabilities_is_reported_as_it_is() -> None:
    judge = _judge(Echo(certainty=9.0), *WORDS)
    *generated, forced, whole = _cases(judge, Echo(certainty=9.5))
    assert all(0.0 < case.worst_log_prob_difference < 1.0 for case in generated)
    assert forced.identical == forced.sentences
    assert 0.0 < forced.worst_log_prob_difference < 1.0
    assert dataclasses.asdict(forced)["ties"] == 0
    assert whole.identical < whole.sentences
    with pytest.raises(VerificationError, match="log-probabilities of whole targets differ by"):
        judge.verdict([whole], "fp32", None)


def test_the_original_is_opened_when_the_graphs_are_no_longer_needed() -> None:
    opened: list[Echo] = []

    def open_original() -> Echo:
        opened.append(Echo())
        return opened[-1]

    corpus = Corpus(WORDS, ((),) * len(WORDS))
    judge = Judge(open_original, Letters(), corpus, DecodingOptions(), max_source_tokens=64, vocabulary=VOCABULARY)
    output = judge.run(Graphs(Echo()), "portable", lambda share: None)
    assert not opened
    assert list(judge.cases(output, lambda share: None))
    assert len(opened) == 1


def test_equal_texts_of_few_words_have_the_highest_bleu() -> None:
    assert score(["Hallo Welt", "ja"], [["Hallo Welt"], ["ja", "doch"]]).bleu == pytest.approx(100.0)
    assert score(["Hallo Welt"], [["Guten Tag"]]).bleu == 0.0
