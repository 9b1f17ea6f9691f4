"""What alignments cost: translating with and without them, in turn: `python -m benchmarks.alignment_cost BUNDLE`.

In one process, without Triton. Prints the median of the ratios with their quartiles.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from statistics import quantiles

from dragoman.search import DecodingOptions
from dragoman.serving.engine import Forcing, Sequence
from dragoman.serving.in_process import LoadedModel, open_model

__all__ = ["main"]

SENTENCES = [
    "Where is the station?",
    "I have never seen such a beautiful city.",
    "She asked me whether I was hungry, and I told her that I had just eaten.",
    "My brother lives in a small house near the river.",
    "The children were playing in the garden when it started to snow.",
    "Nobody believed him.",
    "We don't know when the train will arrive.",
    "Mary bought three apples and a loaf of bread.",
]
CELLS = ((1, 1), (1, 8), (1, 32), (4, 1), (4, 8))  # beam, sentences at a time


def seconds(model: LoadedModel, beam: int, count: int, forcing: Forcing | None) -> float:
    """Of `count` sentences that are translated together."""
    options = DecodingOptions(beam_size=beam)
    sources = [tuple(model.tokenizer.encode(SENTENCES[at % len(SENTENCES)])) for at in range(count)]
    sequences = [Sequence(source, options, forcing=forcing) for source in sources]
    began_s = time.perf_counter()
    model.run(sequences)
    took_s = time.perf_counter() - began_s
    if any(sequence.error is not None for sequence in sequences):
        raise RuntimeError("a sentence was not translated")
    return took_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    model = open_model(arguments.bundle)
    machine = platform.processor() or platform.machine()
    print(f"{arguments.bundle}: {model.manifest.precision}, {arguments.rounds} rounds, {machine}")
    print("| beam | sentences | plain, ms | with alignment, ms | ratio, median (quartiles) |\n|---|---|---|---|---|")
    for beam, count in CELLS:
        for forcing in (None, Forcing(scores=False)):
            seconds(model, beam, count, forcing)
        pairs = [
            (seconds(model, beam, count, None), seconds(model, beam, count, Forcing(scores=False)))
            for _ in range(arguments.rounds)
        ]
        low, middle, high = quantiles([aligned / plain for plain, aligned in pairs], n=4)
        plain, aligned = (1000 * sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
        print(f"| {beam} | {count} | {plain:.1f} | {aligned:.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |")


if __name__ == "__main__":
    main()
