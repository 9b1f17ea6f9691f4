"""The omission guard: checks every sentence of requests with `on_suspicion`, and has suspicious ones translated again."""

from __future__ import annotations

import dataclasses

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.search import DecodingOptions
from dragoman.serving.engine import Sequence
from dragoman.serving.metrics import SUSPICIONS, Recorder
from dragoman.serving.process.answers import Second, SentenceCheck
from dragoman.serving.process.requests import PartOwner
from dragoman.serving.text.suspicion import Evidence, collect_evidence, coverage_of, is_better, longest_answer, other_search

__all__ = ["OmissionGuard"]


class OmissionGuard:
    """Judges sequences that have ended. `ends`: tokens that end a translation; `widest`: the widest beam of the engine."""

    def __init__(self, ends: frozenset[int], widest: int, recorder: Recorder) -> None:
        self._ends, self._widest, self._recorder = ends, widest, recorder

    @staticmethod
    def bounded(decoding: DecodingOptions, source_tokens: int) -> DecodingOptions:
        """The options of a part with a lower length limit, so that endless repetition is stopped early."""
        most = longest_answer(source_tokens)
        if decoding.max_length <= most:
            return decoding
        return dataclasses.replace(decoding, max_length=max(most, decoding.min_length))

    def again(self, owner: PartOwner, sequence: Sequence) -> Sequence | None:
        """The same source with other search settings, if its translation is suspicious and this is the first one."""
        evidence = self._evidence(sequence)
        if owner.first is not None or not evidence.suspicions:
            return None
        return Sequence(
            sequence.source,
            other_search(sequence.options, evidence, self._source_tokens(sequence), self._widest),
            priority=sequence.priority,
            deadline_s=sequence.deadline_s,
            arrived_s=sequence.arrived_s,
            owner=owner._replace(first=sequence),
            request=owner.request,
            forcing=sequence.forcing,
            shortlist=sequence.shortlist,
        )

    def chosen(self, owner: PartOwner, sequence: Sequence) -> tuple[Sequence, SentenceCheck]:
        """The sequence with the better hypotheses, and its report."""
        evidence, first = self._evidence(sequence), owner.first
        if first is None:
            if evidence.suspicions:
                self._recorder.count(SUSPICIONS, label="reported")
            return sequence, SentenceCheck(evidence.length_ratio, evidence.coverage, evidence.suspicions)
        first_evidence = self._evidence(first)
        replaced = is_better((evidence, sequence.hypotheses[0].score), (first_evidence, first.hypotheses[0].score))
        outcome: Second = "replaced" if replaced else "kept"
        self._recorder.count(SUSPICIONS, label=outcome)
        best, told = (sequence, evidence) if replaced else (first, first_evidence)
        return best, SentenceCheck(told.length_ratio, told.coverage, first_evidence.suspicions, outcome)

    def _evidence(self, sequence: Sequence) -> Evidence:
        best = sequence.hypotheses[0]
        target = best.tokens[:-1] if best.tokens and best.tokens[-1] in self._ends else best.tokens
        coverage = None
        if sequence.forced:
            begin, end = self._own_tokens(sequence)
            coverage = coverage_of(sequence.forced[0].alignment[: len(target), begin:end])
        return collect_evidence(self._source_tokens(sequence), target, best.finish == "eos", coverage)

    def _own_tokens(self, sequence: Sequence) -> tuple[int, int]:
        """The tokens of the text itself within a source, between language tokens and end token."""
        around = self._around(sequence)
        end = len(sequence.source) - len(around.source_suffix)
        return len(around.source_prefix), end - (sequence.source[end - 1] in self._ends)

    @staticmethod
    def _around(sequence: Sequence) -> LanguageTokens:
        owner = sequence.owner
        return owner.request.options.language_tokens if isinstance(owner, PartOwner) else NO_LANGUAGE_TOKENS

    def _source_tokens(self, sequence: Sequence) -> int:
        begin, end = self._own_tokens(sequence)
        return end - begin
