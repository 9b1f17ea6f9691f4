"""What each kind of text and each option costs beside plain translation: CPU time, and memory at its peak.

python -m benchmarks.text_cost --bundle bundles/en-de --data shared/data/tatoeba-en-de/test.tsv

Through the engine process's request handler, with one thread. Each feature has a process of its own, which translates the
same sentences plainly and with the feature, in turn; memory is what the process's peak grows by after plain rounds alone.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bundles import bundle_of
from benchmarks.cells import TATOEBA
from benchmarks.paragraphs import Handler
from benchmarks.random_checkpoint import REFERENCE

_EACH = 5
_WORD = re.compile(r"[^\W\d_]{4,}")


def _marked(sentence: str) -> str:
    return _WORD.sub(lambda word: f"<b>{word.group()}</b>", sentence, count=1)


def _paragraphs(sentences: Sequence[str]) -> list[str]:
    return [" ".join(sentences[at : at + _EACH]) for at in range(0, len(sentences), _EACH)]


def _terms(rows: Sequence[Sequence[str]], count: int) -> list[list[str]]:
    """Words that some sources have, and words of their references: enough that many sentences have some."""
    found: dict[str, str] = {}
    for source, reference, *_ in rows:
        for word, term in list(zip(_WORD.findall(source), _WORD.findall(reference), strict=False))[:count]:
            found.setdefault(word.lower(), term)
    return [list(pair) for pair in list(found.items())[:200]]


def _features(rows: Sequence[Sequence[str]]) -> dict[str, tuple[list[str], dict[str, object]]]:
    """The texts of each feature, and its options."""
    sentences = [row[0] for row in rows]
    pages = ["".join(f"<p>{_marked(one)}</p>\n" for one in sentences[at : at + 20]) for at in range(0, len(sentences), 20)]
    return {
        "paragraphs of five": (_paragraphs(sentences), {}),
        "HTML, a tag in each sentence": (pages, {"format": "html"}),
        "Markdown, emphasis in each": (
            [page.replace("<p>", "").replace("</p>", "\n").replace("<b>", "**").replace("</b>", "**") for page in pages],
            {"format": "markdown"},
        ),
        "a placeholder in each": ([_WORD.sub("{x}", one, count=1) for one in sentences], {}),
        "sentences in capitals": ([one.upper() for one in sentences], {}),
        "a glossary of 200 terms": (sentences, {"glossary": _terms(rows, 1)}),
        "alignment": (sentences, {"alignment": True}),
        "alternatives at a place": (sentences, {"alternatives_at": [5]}),
        "on_suspicion: report": (sentences, {"on_suspicion": "report"}),
        "on_suspicion: retry": (sentences, {"on_suspicion": "retry"}),
    }


def _measure(bundle: Path, rows: Sequence[Sequence[str]], name: str, rounds: int, beam_size: int) -> None:
    """In this process: print the ratios of CPU time and the memory, as JSON."""
    handler = Handler(bundle, threads=1)
    sentences = [row[0] for row in rows]
    texts, options = _features(rows)[name]
    for _ in range(2):
        handler.translate(sentences, beam_size=beam_size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ratios = []
    for _ in range(rounds + 1):
        began_s = time.process_time()
        handler.translate(texts, beam_size=beam_size, **options)
        between_s = time.process_time()
        handler.translate(sentences, beam_size=beam_size)
        ratios.append((between_s - began_s) / (time.process_time() - between_s))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"ratios": ratios[1:], "plain_mib": before / 1024, "more_mib": (peak - before) / 1024}))


def main() -> None:
    """One process after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="default: the reference model in fp32")
    parser.add_argument("--data", type=Path, default=TATOEBA, help="sentences and references after tabs")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--only", help="one feature; its figures are printed as JSON")
    arguments = parser.parse_args()
    bundle = arguments.bundle or bundle_of(REFERENCE, "fp32")
    lines = arguments.data.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    rows = [line.split("\t") for line in lines]
    if arguments.only:
        _measure(bundle, rows, arguments.only, arguments.rounds, arguments.beam)
        return
    print(f"{len(rows)} sentences, beam {arguments.beam}, one thread, {arguments.rounds} rounds in turn\n")
    print("| | CPU time, ratio to plain (quartiles) | peak memory, plain | more |\n|---|---|---|---|")
    for name in _features(rows):
        command = [sys.executable, "-m", "benchmarks.text_cost", *sys.argv[1:], "--only", name]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        low, middle, high = statistics.quantiles(found["ratios"], n=4)
        memory = f"{found['plain_mib']:.0f} MiB | {found['more_mib']:.0f} MiB"
        print(f"| {name} | {middle:.2f} ({low:.2f} to {high:.2f}) | {memory} |", flush=True)


if __name__ == "__main__":
    main()
