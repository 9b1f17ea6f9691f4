"""An int8 bundle beside the CTranslate2 model that it was exported from: CPU time, and how much of fp32's answers is left.

python -m benchmarks.ctranslate2_bundle INT8_BUNDLE FP32_BUNDLE CTRANSLATE2_DIRECTORY TEXT [SENTENCES]

For an Argos package the directory is its model/. Both sides run on one thread and take turns; each is compared with itself
in fp32.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import sacrebleu

from benchmarks.machine import describe_machine
from benchmarks.statistics import ratios
from benchmarks.worker_process import Worker, worker
from dragoman.bundle.manifest import read_manifest
from dragoman.bundle.tokenizer import Tokenizer, open_tokenizer

__all__ = ["measure"]

BATCH, ROUNDS = 32, 3
SIDES = ("dragoman", "ctranslate2")


def measure(bundles: dict[str, Path], directory: Path, text: Path, sentences: int) -> list[dict[str, Any]]:
    """Each beam size: how many times faster the bundle is, and what both sides' int8 keeps of their fp32."""
    manifest = read_manifest(bundles["int8"])
    tokenizer = open_tokenizer(bundles["int8"], manifest.tokenizer, manifest.tokens)
    lines = text.read_text(encoding="utf-8").splitlines()[:sentences]
    ids = [tokenizer.encode(line) for line in lines]
    models = {"dragoman": bundles, "ctranslate2": dict.fromkeys(bundles, directory)}
    records = []
    for beam in (1, 4):
        asked = {"sources": ids, "batch": BATCH, "beam": beam, "target_tokens": None, "keep": True}
        kept = {side: [_loaded(side, models[side]["fp32"], "fp32", asked)] for side in SIDES}
        with (
            worker(Path(sys.executable), "dragoman_side", 1) as ours,
            worker(Path(sys.executable), "ctranslate2_side", 1) as theirs,
        ):
            workers: dict[str, Worker] = {"dragoman": ours, "ctranslate2": theirs}
            times: dict[str, list[float]] = {side: [] for side in SIDES}
            for side in SIDES:
                workers[side].ask("load", model=str(models[side]["int8"]), precision="int8", threads=1)
                kept[side].append(workers[side].ask("run", **asked)["outputs"])
            for at in range(ROUNDS):
                for side in SIDES if at % 2 else SIDES[::-1]:
                    times[side].append(workers[side].ask("run", **asked)["cpu_s"])
        agreement = {side: _kept(tokenizer, manifest.tokens.eos, *answers) for side, answers in kept.items()}
        records.append(
            {
                "beam": beam,
                "sentences": len(ids),
                "cpu_ratio": str(ratios(times["ctranslate2"], times["dragoman"])),
                **agreement,
            }
        )
    return records


def _kept(tokenizer: Tokenizer, eos: int, exact: list[list[int]], quantised: list[list[int]]) -> dict[str, float]:
    """Answers that int8 gives as fp32 does, and its BLEU against them. Only one side's answers have the end token."""
    ends = [[[token for token in one if token != eos] for one in answers] for answers in (exact, quantised)]
    texts = [[tokenizer.decode(one) for one in answers] for answers in ends]
    same = sum(one == other for one, other in zip(*ends, strict=True))
    return {"same": same, "bleu": sacrebleu.corpus_bleu(texts[1], [texts[0]]).score}


def _loaded(side: str, model: Path, precision: str, asked: dict[str, Any]) -> list[list[int]]:
    with worker(Path(sys.executable), f"{side}_side", 1) as one:
        one.ask("load", model=str(model), precision=precision, threads=1)
        outputs: list[list[int]] = one.ask("run", **asked)["outputs"]
        return outputs


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:5]]
    print(describe_machine(), "load", os.getloadavg())
    for record in measure(
        {"int8": paths[0], "fp32": paths[1]}, paths[2], paths[3], int(sys.argv[5]) if sys.argv[5:] else 300
    ):
        print(record)
