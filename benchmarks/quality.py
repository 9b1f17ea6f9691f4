"""What a precision costs in quality: BLEU and chrF of every variant on the reference model, greedy and beam 4.

python -m benchmarks.quality
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import sacrebleu

from benchmarks.bundles import bundle_of
from benchmarks.cells import read_sentences
from benchmarks.machine import describe_machine
from benchmarks.peers import CTRANSLATE2, converted_to_ctranslate2
from benchmarks.random_checkpoint import REFERENCE
from benchmarks.results import write_results
from benchmarks.worker_process import worker
from dragoman.bundle.manifest import Precision, read_manifest
from dragoman.bundle.tokenizer import open_tokenizer

__all__ = ["measure_quality", "quality_table"]

GOALS = {"fp16": -0.1, "int8": -0.3}
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")


def measure_quality(sentences: int = 1000) -> list[dict[str, Any]]:
    """BLEU and chrF of dragoman in every precision and of CTranslate2 in its two, on the same sentences."""
    sources, references = read_sentences(sentences)
    if not all(references):
        raise SystemExit("the bundled sentences have no references; quality needs the Tatoeba test set")
    bundle = bundle_of(REFERENCE, "fp32")
    manifest = read_manifest(bundle)
    tokenizer = open_tokenizer(bundle, manifest.tokenizer, manifest.tokens)
    ids = [tokenizer.encode(source) for source in sources]
    records = []
    for engine, precision in [
        *(("dragoman", name) for name in PRECISIONS),
        ("ctranslate2", "fp32"),
        ("ctranslate2", "int8"),
    ]:
        python = Path(sys.executable) if engine == "dragoman" else CTRANSLATE2.python()
        model = bundle_of(REFERENCE, precision) if engine == "dragoman" else converted_to_ctranslate2(REFERENCE, precision)
        with worker(python, f"{engine}_side", 1) as side:
            side.ask("load", model=str(model), precision=precision, threads=1)
            for beam in (1, 4):
                outputs = side.ask("run", sources=ids, batch=32, beam=beam, target_tokens=None, keep=True)["outputs"]
                outputs_text = [tokenizer.decode(output) for output in outputs]
                records.append({"engine": engine, "precision": precision, "beam": beam, **scores(outputs_text, references)})
    return records


def scores(outputs_text: list[str], references: list[list[str]]) -> dict[str, float]:
    """Corpus BLEU and chrF against all references a sentence has; where it has fewer than others, its first again."""
    most = max(map(len, references))
    streams = [[refs[index] if index < len(refs) else refs[0] for refs in references] for index in range(most)]
    bleu, chrf = sacrebleu.corpus_bleu(outputs_text, streams), sacrebleu.corpus_chrf(outputs_text, streams)
    return {"bleu": float(bleu.score), "chrf": float(chrf.score)}


def quality_table(records: list[dict[str, Any]]) -> str:
    """BLEU beside what fp32 of the same engine and beam reaches."""
    lines = ["| engine | precision | beam | BLEU | chrF | BLEU against fp32 | goal |", "|---|---|---|---|---|---|---|"]
    exact = {(one["engine"], one["beam"]): one["bleu"] for one in records if one["precision"] == "fp32"}
    for one in records:
        lost = one["bleu"] - exact[one["engine"], one["beam"]]
        goal = GOALS.get(one["precision"]) if one["engine"] == "dragoman" else None
        lines.append(
            f"| {one['engine']} | {one['precision']} | {one['beam']} | {one['bleu']:.2f} | {one['chrf']:.2f} | {lost:+.2f} "
            f"| {'' if goal is None else goal} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    found = measure_quality()
    write_results("quality", {"machine": describe_machine(), "records": found}, quality_table(found))
