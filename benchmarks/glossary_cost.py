"""What terms cost and do: translating with and without, in turn: `python -m benchmarks.glossary_cost BUNDLE PAIRS.tsv`.

PAIRS.tsv has a source, a tab and its reference in each line. Terms are words of the references that their alignment links
with one word of the source and no other, drawn from a seed: those that a glossary would ask for. In one process, without
Triton; reference cycles are collected as an engine process does it. Prints the median of the ratios with their quartiles,
how many terms translations have as whole words, their BLEU, and how many of the terms that are there stand where the
translation looks at their source: without terms, as the search has put them, and as they are placed.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Many
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import sacrebleu

from dragoman.search import DecodingOptions
from dragoman.serving.engine import ForcedTarget, Forcing, Sequence
from dragoman.serving.in_process import LoadedModel, open_model
from dragoman.serving.process.loop import GarbageCollector
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.text.aligning import SpannedText, links_between
from dragoman.serving.text.links import Link
from dragoman.serving.text.term_places import PartTerms, Term

__all__ = ["main"]

BEAM = 4
TERMS = (1, 3)
_FEWEST_WORDS, _FEWEST_LETTERS = 6, 4


class Case(NamedTuple):
    """A sentence and the terms that its translation must have."""

    source: str
    reference: str
    terms: tuple[Term, ...]


class Run(NamedTuple):
    """Translations of all cases: as the search wrote them, and with the terms in their places."""

    searched: list[str]
    placed: list[str]
    wall_s: float
    cpu_s: float
    steps: int


def read_pairs(path: Path, most: int) -> list[tuple[str, str]]:
    """Sources and references that are long enough to have terms."""
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    pairs = [(columns[0], columns[1]) for columns in lines if len(columns) > 1]
    return [pair for pair in pairs if len(pair[1].split()) >= _FEWEST_WORDS][:most]


def read_targets(model: LoadedModel, sources: Many[str], targets: Many[str]) -> list[ForcedTarget]:
    """What the model makes of given translations."""
    encode, end = model.tokenizer.encode_target, model.manifest.tokens.eos
    sequences = [
        Sequence(tuple(model.tokenizer.encode(source)), forcing=Forcing(targets=((*encode(target), end),)))
        for source, target in zip(sources, targets, strict=True)
    ]
    model.run(sequences)
    return [sequence.forced[0] for sequence in sequences]


def links_of(model: LoadedModel, source: str, target: ForcedTarget) -> tuple[Link, ...]:
    """Words of a source and of a target that the model has read."""
    tokenizer = model.tokenizer
    read = SpannedText(tokenizer.decode(target.tokens), tokenizer.target_spans(target.tokens))
    return links_between(SpannedText(source, tokenizer.source_spans(source)), read, target.alignment)


def linked_terms(model: LoadedModel, source: str, target: ForcedTarget) -> list[Term]:
    """Words of a reference, each with the word of the source that it is linked with, where both are linked with no other."""
    links, text = links_of(model, source, target), model.tokenizer.decode(target.tokens)
    words = Counter((link.target_start, link.target_end) for link in links)
    sources = Counter((link.source_start, link.source_end) for link in links)
    return [
        Term(*own, text[slice(*word)])
        for link in links
        if words[word := (link.target_start, link.target_end)] == sources[own := (link.source_start, link.source_end)] == 1
        and word[1] - word[0] >= _FEWEST_LETTERS
        and text.count(text[slice(*word)]) == 1
    ]


def cases_of(model: LoadedModel, pairs: list[tuple[str, str]], count: int) -> list[Case]:
    """The sentences that have so many terms."""
    sources, references = zip(*pairs, strict=True)
    read, dice = read_targets(model, sources, references), random.Random(count)
    found = [linked_terms(model, source, one) for source, one in zip(sources, read, strict=True)]
    return [
        Case(*pair, tuple(dice.sample(terms, count)))
        for pair, terms in zip(pairs, found, strict=True)
        if len(terms) >= count
    ]


def required(kind: str | None, terms: Many[Term], encode: Callable[[str], list[int]]) -> DecodingOptions:
    """For translations that must have each of these, as terms or as phrases."""
    rows = tuple((tuple(encode(term.target)),) for term in terms)
    if kind == "phrases":
        return DecodingOptions(beam_size=BEAM, phrases=rows)
    return DecodingOptions(beam_size=BEAM, terms=rows) if kind == "terms" else DecodingOptions(beam_size=BEAM)


def translate(model: LoadedModel, cases: Many[Case], kind: str | None = None) -> Run:
    """All cases together. `kind`: the option that terms are asked for with, which are put in their places then."""
    encode, decode = model.tokenizer.encode_target, model.tokenizer.decode
    sequences = [
        Sequence(
            tuple(model.tokenizer.encode(case.source)),
            required(kind, case.terms, encode),
            forcing=Forcing(best_only=True, scores=False) if kind else None,
        )
        for case in cases
    ]
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    model.run(sequences)
    if any(sequence.error is not None for sequence in sequences):
        raise RuntimeError("a sentence was not translated")
    searched = [decode(sequence.hypotheses[0].tokens) for sequence in sequences]
    placed = searched
    if kind:
        placed = [
            PartTerms(case.source, case.terms).in_place(text, links_of(model, case.source, sequence.forced[0]))[0]
            for case, text, sequence in zip(cases, searched, sequences, strict=True)
        ]
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    return Run(searched, placed, wall_s, cpu_s, sum(sequence.steps for sequence in sequences))


def spread(ratios: list[float]) -> str:
    """Their median and quartiles."""
    low, middle, high = quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def hit_rate(cases: Many[Case], texts: list[str]) -> float:
    """The share of the terms that are there as whole words, with a capital or without."""
    used = [
        bool(re.search(rf"(?<!\w){re.escape(term.target)}(?!\w)", text, re.IGNORECASE))
        for case, text in zip(cases, texts, strict=True)
        for term in case.terms
    ]
    return sum(used) / len(used)


def share_placed(model: LoadedModel, cases: Many[Case], texts: list[str]) -> float:
    """Of the terms that are there, how many the model links with their sources as it reads the translations."""
    there = right = 0
    for case, one in zip(cases, read_targets(model, [case.source for case in cases], texts), strict=True):
        text, links = model.tokenizer.decode(one.tokens), links_of(model, case.source, one)
        for term in case.terms:
            if found := re.search(rf"(?<!\w){re.escape(term.target)}(?!\w)", text, re.IGNORECASE):
                there += 1
                here = [link for link in links if link.target_start < found.end() and link.target_end > found.start()]
                right += (term.start, term.end) in [(link.source_start, link.source_end) for link in here]
    return right / max(there, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--sentences", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="of the engine (0: as a server has)")
    parser.add_argument("--phrases", action="store_true", help="require phrases, which may be parts of words")
    arguments = parser.parse_args()
    model = open_model(arguments.bundle, RuntimeSettings(threads=arguments.threads))
    pairs, kind = read_pairs(arguments.pairs, arguments.sentences), "phrases" if arguments.phrases else "terms"
    machine = platform.processor() or platform.machine()
    print(f"{arguments.bundle}: {model.manifest.precision}, {arguments.rounds} rounds, {machine}")
    print("| terms | sentences | time, ratio (quartiles) | CPU time, ratio | steps, ratio | hit rate | BLEU | placed |")
    print("|---" * 8 + "|")
    collector = GarbageCollector()
    for count in TERMS:
        cases = cases_of(model, pairs, count)
        translate(model, cases), translate(model, cases, kind)
        rounds = [(translate(model, cases), translate(model, cases, kind)) for _ in range(arguments.rounds)]
        collector.run(at_rest=True)
        free, constrained = rounds[-1]
        texts, references = (free.searched, constrained.searched, constrained.placed), [[case.reference for case in cases]]
        columns = (
            spread([constrained.wall_s / free.wall_s for free, constrained in rounds]),
            spread([constrained.cpu_s / free.cpu_s for free, constrained in rounds]),
            f"{constrained.steps / free.steps:.2f}",
            ", ".join(f"{hit_rate(cases, each):.1%}" for each in texts),
            ", ".join(f"{sacrebleu.corpus_bleu(each, references).score:.1f}" for each in texts),
            ", ".join(f"{share_placed(model, cases, each):.1%}" for each in texts),
        )
        print(f"| {count} | {len(cases)} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
