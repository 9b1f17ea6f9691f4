"""What terms cost and do: translating with and without, in turn: `python -m benchmarks.glossary_cost BUNDLE PAIRS.tsv`.

PAIRS.tsv has a source, a tab and its reference in each line. Terms are words of the references, drawn from a seed: those
that a glossary would ask for. In one process, without Triton. Prints the median of the ratios with their quartiles, how many
terms translations have, and their BLEU.
"""

from __future__ import annotations

import argparse
import platform
import random
import time
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import sacrebleu

from dragoman.search import DecodingOptions
from dragoman.serving.engine import Sequence
from dragoman.serving.in_process import LoadedModel, open_model

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--sentences", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    model, pairs = open_model(arguments.bundle), read_pairs(arguments.pairs, arguments.sentences)
    machine = platform.processor() or platform.machine()
    print(f"{arguments.bundle}: {model.manifest.precision}, {len(pairs)} sentences, {arguments.rounds} rounds, {machine}")
    print("| terms | time, ratio (quartiles) | steps, ratio | hit rate | with terms | BLEU | with terms |")
    print("|---|---|---|---|---|---|---|")
    sources = [tuple(model.tokenizer.encode(source)) for source, _ in pairs]
    references = [reference for _, reference in pairs]
    plain = DecodingOptions(beam_size=BEAM)
    for count in TERMS:
        dice = random.Random(count)
        terms = [drawn_terms(reference, count, dice) for reference in references]
        phrases = [tuple((tuple(model.tokenizer.encode_target(term)),) for term in each) for each in terms]
        sides = [plain] * len(pairs), [DecodingOptions(beam_size=BEAM, phrases=each) for each in phrases]
        for options in sides:
            translate(model, sources, options)
        rounds = [tuple(translate(model, sources, options) for options in sides) for _ in range(arguments.rounds)]
        low, middle, high = quantiles([constrained.wall_s / free.wall_s for free, constrained in rounds], n=4)
        free, constrained = rounds[-1]

        def hits(found: Translated, wanted: list[list[str]] = terms) -> float:
            used = [term in text for text, each in zip(found.texts, wanted, strict=True) for term in each]
            return sum(used) / len(used)

        bleu = [sacrebleu.corpus_bleu(side.texts, [references]).score for side in (free, constrained)]
        print(
            f"| {count} | {middle:.2f} ({low:.2f} to {high:.2f}) | {constrained.steps / free.steps:.2f} "
            f"| {hits(free):.1%} | {hits(constrained):.1%} | {bleu[0]:.1f} | {bleu[1]:.1f} |"
        )


if __name__ == "__main__":
    main()
