"""What terms cost and do: translating with and without, in turn: `python -m benchmarks.glossary_cost BUNDLE PAIRS.tsv`.

PAIRS.tsv has a source, a tab and its reference in each line. Terms are words of the references, drawn from a seed: those
that a glossary would ask for. In one process, without Triton. Prints the median of the ratios with their quartiles, how many
terms translations have as whole words, and their BLEU; then, of terms that the alignment of the reference links with one
word of the source and no other, how many stand where the translation looks at that word.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import sacrebleu

from dragoman.search import DecodingOptions
from dragoman.serving.engine import ForcedTarget, Forcing, Sequence
from dragoman.serving.in_process import LoadedModel, open_model
from dragoman.serving.runtime.settings import RuntimeSettings
from dragoman.serving.text.aligning import SpannedText, links_between
from dragoman.serving.text.links import Link

__all__ = ["main"]

BEAM = 4
TERMS = (1, 3)
_FEWEST_WORDS, _FEWEST_LETTERS = 6, 4


class Translated(NamedTuple):
    """A run over all sentences."""

    texts: list[str]
    wall_s: float
    steps: int


def read_pairs(path: Path, most: int) -> list[tuple[str, str]]:
    """Sources and references that are long enough to have terms."""
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    pairs = [(columns[0], columns[1]) for columns in lines if len(columns) > 1]
    return [pair for pair in pairs if len(pair[1].split()) >= _FEWEST_WORDS][:most]


def drawn_terms(reference: str, count: int, dice: random.Random) -> list[str]:
    """Different words of the reference."""
    words = dict.fromkeys(word.strip('.,!?"') for word in reference.split())
    long = [word for word in words if len(word) >= _FEWEST_LETTERS]
    return dice.sample(long, min(count, len(long)))


def translate(model: LoadedModel, sources: list[tuple[int, ...]], options: list[DecodingOptions]) -> Translated:
    """All sources together, each with its own options."""
    sequences = [Sequence(source, each) for source, each in zip(sources, options, strict=True)]
    began_s = time.perf_counter()
    model.run(sequences)
    wall_s = time.perf_counter() - began_s
    if any(sequence.error is not None for sequence in sequences):
        raise RuntimeError("a sentence was not translated")
    texts = [model.tokenizer.decode(sequence.hypotheses[0].tokens) for sequence in sequences]
    return Translated(texts, wall_s, sum(sequence.steps for sequence in sequences))


def required(kind: str, words: Iterable[tuple[int, ...]]) -> DecodingOptions:
    """For translations that must have each of these, as terms or as phrases."""
    rows = tuple((tokens,) for tokens in words)
    if kind == "phrases":
        return DecodingOptions(beam_size=BEAM, phrases=rows)
    return DecodingOptions(beam_size=BEAM, terms=rows)


def links_of(model: LoadedModel, source: str, target: ForcedTarget) -> tuple[Link, ...]:
    """Words of a source and of a target that the model has read."""
    tokenizer = model.tokenizer
    read = SpannedText(tokenizer.decode(target.tokens), tokenizer.target_spans(target.tokens))
    return links_between(SpannedText(source, tokenizer.source_spans(source)), read, target.alignment)


def linked_terms(model: LoadedModel, source: str, target: ForcedTarget) -> list[tuple[str, tuple[int, int]]]:
    """Words of a reference, each with the word of the source that it is linked with, where both are linked with no other."""
    links, text = links_of(model, source, target), model.tokenizer.decode(target.tokens)
    words = Counter((link.target_start, link.target_end) for link in links)
    sources = Counter((link.source_start, link.source_end) for link in links)
    return [
        (text[slice(*word)], own)
        for link in links
        if words[word := (link.target_start, link.target_end)] == sources[own := (link.source_start, link.source_end)] == 1
        and word[1] - word[0] >= _FEWEST_LETTERS
        and text.count(text[slice(*word)]) == 1
    ]


def placement(model: LoadedModel, pairs: list[tuple[str, str]], count: int, kind: str) -> str:
    """Shares of the terms that stand at the right place, of those that are there: without terms in the search, and with."""
    encode, end = model.tokenizer.encode_target, model.manifest.tokens.eos
    sources = [tuple(model.tokenizer.encode(source)) for source, _ in pairs]
    read = [
        Sequence(source, forcing=Forcing(targets=((*encode(reference), end),)))
        for source, (_, reference) in zip(sources, pairs, strict=True)
    ]
    model.run(read)
    dice = random.Random(count)
    found = [linked_terms(model, source, one.forced[0]) for (source, _), one in zip(pairs, read, strict=True)]
    chosen = [(at, dice.sample(terms, count)) for at, terms in enumerate(found) if len(terms) >= count]
    shares = []
    for is_constrained in (False, True):
        options = [required(kind, [tuple(encode(term)) for term, _ in terms if is_constrained]) for _, terms in chosen]
        aligned = Forcing(best_only=True, scores=False)
        answers = [Sequence(sources[at], each, forcing=aligned) for (at, _), each in zip(chosen, options, strict=True)]
        model.run(answers)
        there = right = 0
        for (at, terms), answer in zip(chosen, answers, strict=True):
            text, links = (
                model.tokenizer.decode(answer.hypotheses[0].tokens),
                links_of(model, pairs[at][0], answer.forced[0]),
            )
            for term, own in terms:
                if (start := text.find(term)) >= 0:
                    there += 1
                    here = [link for link in links if link.target_start < start + len(term) and link.target_end > start]
                    right += own in [(link.source_start, link.source_end) for link in here]
        shares.append(f"{right / max(there, 1):.1%} of {there}")
    return f"| {count} | {len(chosen)} | {shares[0]} | {shares[1]} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--sentences", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="of the engine (0: as a server has)")
    parser.add_argument("--phrases", action="store_true", help="require phrases, which may be parts of words")
    parser.add_argument("--placed", type=int, default=800, help="sentences of the second table")
    arguments = parser.parse_args()
    model = open_model(arguments.bundle, RuntimeSettings(threads=arguments.threads))
    pairs = read_pairs(arguments.pairs, arguments.sentences)
    machine = platform.processor() or platform.machine()
    print(f"{arguments.bundle}: {model.manifest.precision}, {len(pairs)} sentences, {arguments.rounds} rounds, {machine}")
    print("| terms | time, ratio (quartiles) | steps, ratio | hit rate | with terms | BLEU | with terms |")
    print("|---|---|---|---|---|---|---|")
    sources = [tuple(model.tokenizer.encode(source)) for source, _ in pairs]
    references = [reference for _, reference in pairs]
    plain = DecodingOptions(beam_size=BEAM)
    kind = "phrases" if arguments.phrases else "terms"
    for count in TERMS:
        dice = random.Random(count)
        terms = [drawn_terms(reference, count, dice) for reference in references]
        words = [[tuple(model.tokenizer.encode_target(term)) for term in each] for each in terms]
        sides = [plain] * len(pairs), [required(kind, each) for each in words]
        for options in sides:
            translate(model, sources, options)
        rounds = [tuple(translate(model, sources, options) for options in sides) for _ in range(arguments.rounds)]
        low, middle, high = quantiles([constrained.wall_s / free.wall_s for free, constrained in rounds], n=4)
        free, constrained = rounds[-1]

        def hits(found: Translated, wanted: list[list[str]] = terms) -> float:
            pairs_of = zip(found.texts, wanted, strict=True)
            used = [bool(re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text)) for text, each in pairs_of for term in each]
            return sum(used) / len(used)

        bleu = [sacrebleu.corpus_bleu(side.texts, [references]).score for side in (free, constrained)]
        print(
            f"| {count} | {middle:.2f} ({low:.2f} to {high:.2f}) | {constrained.steps / free.steps:.2f} "
            f"| {hits(free):.1%} | {hits(constrained):.1%} | {bleu[0]:.1f} | {bleu[1]:.1f} |"
        )

    print("\n| terms | sentences | at the right place without | with |\n|---|---|---|---|")
    for count in TERMS:
        print(placement(model, read_pairs(arguments.pairs, arguments.placed), count, kind))


if __name__ == "__main__":
    main()
