"""Compares the original with the exported graphs: every case of a verification, and the verdict.

The graphs are run first, and the original after they are closed: the two are never in memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.manifest import Lowering, Precision, Verification, VerificationCase
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.export.progress import Advance
from dragoman.export.verification.answers import Answer, Exported, FloatArray, IntArray, Original, Tokens
from dragoman.export.verification.corpus import Corpus
from dragoman.export.verification.languages import VerifiedLanguages
from dragoman.export.verification.quality import score
from dragoman.export.verification.searches import Search, Source, planned_searches
from dragoman.export.verification.verdict import TOLERANCE, WHOLE, verdict
from dragoman.search.options import DecodingOptions

__all__ = ["Judge", "Output"]

_T = TypeVar("_T")

BATCH = 32
ALONE = 4
"""Sentences that are also decoded one at a time, without padding."""
FORCED = 4
"""Sentences whose tokens are forced, to compare log-probabilities step by step."""
LOGITS_BYTES = 64 << 20
"""Of a step's logits for all rows of the original: its beam search has several copies of them in memory at once."""
TIE = 5e-5
"""Two log-probabilities closer than this are equal in fp32: which one wins is a matter of rounding."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One sentence and the output of both sides."""

    source: Source
    theirs: Tokens
    ours: Answer

    @property
    def agree(self) -> bool:
        """Token for token."""
        return self.theirs == self.ours.tokens


@dataclass(frozen=True, slots=True)
class Chunk:
    """Sentences that are decoded in one batch, and the output of the graphs."""

    sources: tuple[Source, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ForcedSentence:
    """One sentence with the graphs' own answer forced: its best next tokens and their log-probabilities, (steps, k) each."""

    source: Source
    answer: Tokens
    best: IntArray
    log_probs: FloatArray
    scored: FloatArray  # (steps,): of the answer's own tokens, by the graph that takes whole targets


@dataclass(frozen=True, slots=True)
class Output:
    """What one lowering's graphs gave: by the name of the search and the size of a batch, and with forced tokens."""

    lowering: Lowering
    generated: Mapping[tuple[str, int], tuple[Chunk, ...]]
    forced: tuple[ForcedSentence, ...]


class Judge:
    """Runs the graphs of each lowering, then the original, and compares their output."""

    def __init__(
        self,
        open_original: Callable[[], Original],
        tokenizer: Tokenizer,
        corpus: Corpus,
        generation: DecodingOptions,
        max_source_tokens: int,
        *,
        vocabulary: int,
        languages: LanguageResolver | None = None,
    ) -> None:
        self._open_original, self._tokenizer, self._vocabulary = open_original, tokenizer, vocabulary
        self._opened: Original | None = None
        self._sentences = len(corpus.sentences)
        verified = VerifiedLanguages(tokenizer, languages or LanguageResolver())
        targets = verified.targets(is_one=corpus.has_references and verified.languages.target.default is not None)
        # References are in one language, and whoever gives them to a model of several has to leave no doubt which it is.
        self._scored_against_references = corpus.has_references and len(targets) == 1
        self._searches = planned_searches(corpus, verified, targets, generation, max_source_tokens)
        self._outputs: dict[tuple[str, int], list[Tokens]] = {}

    def run(self, exported: Exported, lowering: Lowering, advance: Advance) -> Output:
        """Compute everything that will be compared; the graphs are not needed after that."""
        generated, total = {}, 2 * len(self._searches) + 1
        for name, search in self._searches.items():
            for batch in (1, BATCH):
                generated[name, batch] = tuple(self._chunks(exported, search, batch))
                advance(len(generated) / total)
        output = Output(lowering, generated, tuple(self._forced_steps(exported)))
        advance(1.0)
        return output

    @property
    def original(self) -> Original:
        """Opened when it is first asked for."""
        if self._opened is None:
            self._opened = self._open_original()
        return self._opened

    def cases(self, output: Output, advance: Advance) -> Iterator[VerificationCase]:
        """Every comparison of one lowering, yielded as it is done."""
        for done, ((name, batch), chunks) in enumerate(output.generated.items()):
            yield self._generated(output.lowering, name, batch, chunks)
            advance((done + 1) / (len(output.generated) + 2))
        yield self._forced(output)
        yield self._whole(output)
        advance(1.0)

    def verdict(
        self,
        cases: Sequence[VerificationCase],
        precision: Precision,
        max_quality_loss: float | None,
        shortlist: bool = False,
    ) -> Verification:
        """The result for the manifest; VerificationError when the graphs are not good enough to be written."""
        return verdict(
            cases,
            reference=self.original.name,
            sentences=self._sentences,
            scored_against="references" if self._scored_against_references else "original",
            precision=precision,
            max_quality_loss=max_quality_loss,
            shortlist=shortlist,
        )

    @staticmethod
    def _chunks(exported: Exported, search: Search, batch: int) -> Iterator[Chunk]:
        sources = _spread(search.sources, ALONE) if batch == 1 else search.sources
        for start in range(0, len(sources), batch):
            chunk = tuple(sources[start : start + batch])
            answers = exported.generate([source.ids for source in chunk], search.options, search.language)
            yield Chunk(chunk, tuple(answers))

    def _forced_steps(self, exported: Exported) -> Iterator[ForcedSentence]:
        search = next(iter(self._searches.values()))
        sources, language = _spread(search.sources, FORCED), search.language
        answers = [exported.generate([source.ids], search.options, language)[0].tokens for source in sources]
        steps = [exported.forced(source.ids, answer, language) for source, answer in zip(sources, answers, strict=True)]
        for source, answer, step in zip(sources, answers, steps, strict=True):  # another graph, which replaces the steps'
            yield ForcedSentence(source, answer, *step, exported.scored(source.ids, answer, language))

    def _generated(self, lowering: Lowering, name: str, batch: int, chunks: Sequence[Chunk]) -> VerificationCase:
        options = self._searches[name].options
        pairs: list[Pair] = []
        for chunk in chunks:
            pairs += map(Pair, chunk.sources, self._originally(name, options, chunk.sources), chunk.answers)
        same = [pair for pair in pairs if pair.agree]
        differences = [
            abs(self._rescored(pair, pair.ours.tokens, options) - pair.ours.score) for pair in _spread(same, ALONE)
        ]
        quality, loss = self._quality(pairs)
        return VerificationCase(
            name=f"{name}, batch {batch}",
            lowering=lowering,
            sentences=len(pairs),
            identical=len(same),
            ties=sum(self._tied(pair, options) for pair in pairs if not pair.agree),
            tokens=sum(len(pair.theirs) for pair in pairs),
            worst_log_prob_difference=max(differences, default=0.0),
            bleu=quality[0],
            chrf=quality[1],
            quality_loss=loss,
        )

    def _originally(self, name: str, options: DecodingOptions, chunk: Sequence[Source]) -> list[Tokens]:
        """The original's output; each sentence is run in the same batch for every lowering, and only once."""
        key = (name, hash(tuple(source.ids for source in chunk)))
        if key not in self._outputs:
            most = max(1, LOGITS_BYTES // (4 * self._vocabulary * options.beam_size))
            batches = [chunk[start : start + most] for start in range(0, len(chunk), most)]
            outputs = [self.original.generate([source.ids for source in batch], options) for batch in batches]
            self._outputs[key] = [tokens for output in outputs for tokens in output]
        return self._outputs[key]

    def _quality(self, pairs: Sequence[Pair]) -> tuple[tuple[float, float], float]:
        theirs = [self._tokenizer.decode(pair.theirs) for pair in pairs]
        ours = [self._tokenizer.decode(pair.ours.tokens) for pair in pairs]
        if not self._scored_against_references:
            quality = score(ours, [[text] for text in theirs])
            return (quality.bleu, quality.chrf), (0.0 if ours == theirs else 100.0 - quality.chrf)
        references = [pair.source.references for pair in pairs]
        quality = score(ours, references)
        return (quality.bleu, quality.chrf), max(0.0, score(theirs, references).bleu - quality.bleu)

    def _tied(self, pair: Pair, options: DecodingOptions) -> bool:
        """Whether the original itself finds both answers equally good, so that rounding chose between them."""
        theirs, ours = pair.theirs, pair.ours.tokens
        if options.beam_size > 1:
            return abs(self._rescored(pair, theirs, options) - self._rescored(pair, ours, options)) < TIE
        apart = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
        if apart is None:
            return False
        step = self.original.log_probs(pair.source.ids, theirs, pair.source.language)[apart]
        return bool(abs(step[theirs[apart]] - step[ours[apart]]) < TIE)

    def _rescored(self, pair: Pair, tokens: Tokens, options: DecodingOptions) -> float:
        """The score that the original gives `tokens`; a token that is forced costs nothing."""
        steps = self.original.log_probs(pair.source.ids, tokens, pair.source.language)
        chosen = steps[np.arange(len(tokens)), list(tokens)]
        if len(tokens) == options.max_length and options.forced_eos is not None:
            chosen[-1] = 0.0
        if options.forced_bos is not None:
            chosen[0] = 0.0
        return float(chosen.sum() / len(tokens) ** options.length_penalty)

    def _forced(self, output: Output) -> VerificationCase:
        worst, identical, tokens = 0.0, 0, 0
        for one in output.forced:
            theirs = self.original.log_probs(one.source.ids, one.answer, one.source.language)  # (steps, vocabulary)
            expected = np.take_along_axis(theirs, one.best, axis=1)
            masked = np.isneginf(one.log_probs)  # by −∞ in the bias of the logits, or missing in a short list
            masked &= np.isneginf(expected) | bool(one.source.language.shortlist)
            difference = np.abs(np.subtract(expected, one.log_probs, where=~masked, out=np.zeros_like(expected)))
            worst = max(worst, float(difference.max()))
            identical += bool((theirs.argmax(1) == one.best[:, 0]).all())
            tokens += len(one.answer)
        sentences = len(output.forced)
        return VerificationCase(
            name="forced tokens",
            lowering=output.lowering,
            sentences=sentences,
            identical=identical,
            ties=sentences - identical if worst < TIE else 0,
            tokens=tokens,
            worst_log_prob_difference=worst,
        )

    def _whole(self, output: Output) -> VerificationCase:
        """The graph that takes whole targets: the log-probability of every token."""
        worst, identical = 0.0, 0
        for one in output.forced:
            steps = self.original.log_probs(one.source.ids, one.answer, one.source.language)
            theirs = steps[np.arange(len(one.answer)), list(one.answer)]
            sayable = np.isfinite(one.scored)  # a shortlist leaves tokens out
            differences = np.subtract(theirs, one.scored, where=sayable, out=np.zeros_like(one.scored))
            difference = float(np.abs(differences).max(initial=0.0))
            worst = max(worst, difference)
            identical += difference <= TOLERANCE
        return VerificationCase(
            name=WHOLE,
            lowering=output.lowering,
            sentences=len(output.forced),
            identical=identical,
            tokens=sum(len(one.answer) for one in output.forced),
            worst_log_prob_difference=worst,
        )


def _spread(ordered: Sequence[_T], count: int) -> list[_T]:
    """`count` of what is ordered by length, the shortest and the longest among them, evenly spread between."""
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[round(i * (len(ordered) - 1) / (count - 1))] for i in range(count)]
