"""What a shortlist gains where the vocabulary is large, and what it loses: `python -m benchmarks --only shortlist`.

Speed: OPUS-MT's size with 58,101 words, as it is and with a list of some thousands of them, in turn. Which words they are
makes no difference to the time. Quality: the reference model with the tokens of so many sentences of another text than the
one that is translated.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.bundles import bundle_of
from benchmarks.cells import TATOEBA, Grid, checkpoint_of, fixed_sources, read_sentences
from benchmarks.offline import interleave
from benchmarks.peers import CACHE
from benchmarks.quality import scores
from benchmarks.random_checkpoint import OPUS_MT, REFERENCE
from benchmarks.statistics import Spread, ratios
from benchmarks.worker_process import Worker, worker
from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, Precision, read_manifest
from dragoman.serving.in_process import open_model

__all__ = ["measure_shortlist", "shortlist_table"]

LISTED = 8_192
SOURCE_TOKENS, TARGET_TOKENS = 20, 24
CELLS = ((1, 1), (1, 8), (1, 32), (4, 1), (4, 8))  # beam, batch
SENTENCES = (0, 250, 1000)

Record = dict[str, Any]


def measure_shortlist(grid: Grid) -> dict[str, list[Record]]:
    """Times with and without a list for each precision, and scores with lists from more and more text."""
    speed = [record for precision in grid.precisions for record in _speed(precision, grid)]
    return {"speed": speed, "quality": [_quality(count) for count in SENTENCES] if TATOEBA.is_file() else []}


def shortlist_table(figures: dict[str, list[Record]]) -> str:
    lines = [
        f"{OPUS_MT.vocabulary:,} words and a list of {LISTED:,}; {SOURCE_TOKENS} and {TARGET_TOKENS} tokens, one thread.",
        "",
        "| precision | beam | batch | whole vocabulary, ms a sentence | shortlist | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for one in figures["speed"]:
        whole, short = (one[side] * 1000 for side in ("whole_s", "short_s"))
        cell = f"| {one['precision']} | {one['beam']} | {one['batch']} | {whole:.2f} | {short:.2f} "
        lines.append(f"{cell}| {Spread(**one['wall_ratio'])} |")
    lines += ["", "| text of the list, reference model in fp32 | tokens | BLEU greedy | BLEU beam 4 |", "|---|---|---|---|"]
    for one in figures["quality"]:
        text = f"{one['sentences']} sentences" if one["sentences"] else "none: the whole vocabulary"
        lines.append(f"| {text} | {one['tokens']:,} | {one['greedy']:.2f} | {one['beam 4']:.2f} |")
    return "\n".join(lines)


def _speed(precision: Precision, grid: Grid) -> list[Record]:
    whole = bundle_of(checkpoint_of(OPUS_MT.name, CACHE), precision)
    with contextlib.ExitStack() as stack:
        sides: list[Worker] = []
        for bundle in (whole, _shortened(whole, precision)):
            sides.append(stack.enter_context(worker(Path(sys.executable), "dragoman_side", 1)))
            sides[-1].ask("load", model=str(bundle), precision=precision, threads=1)
        return [{"precision": precision, **_cell(sides[0], sides[1], beam, batch, grid)} for beam, batch in CELLS]


def _cell(whole: Worker, short: Worker, beam: int, batch: int, grid: Grid) -> Record:
    sources = fixed_sources(max(batch, 8), SOURCE_TOKENS, OPUS_MT.vocabulary)
    asked = {"sources": sources, "batch": batch, "beam": beam, "target_tokens": TARGET_TOKENS}
    for side in (whole, short):
        side.ask("run", **asked)
    with_list, without = interleave(lambda: short.ask("run", **asked), lambda: whole.ask("run", **asked), grid)
    times = {name: [run["wall_s"] for run in runs] for name, runs in (("whole_s", without), ("short_s", with_list))}
    return {
        **{"beam": beam, "batch": batch, "rounds": len(with_list)},
        **{name: sorted(walls)[len(walls) // 2] / len(sources) for name, walls in times.items()},
        "wall_ratio": asdict(ratios(times["whole_s"], times["short_s"])),
    }


def _shortened(whole: Path, precision: Precision) -> Path:
    """The same bundle with a list of evenly spread words: random weights have no text to take one from."""
    from dragoman.export.checkpoint import read_checkpoint
    from dragoman.export.graphs import build_graphs

    output, manifest = whole.with_name(f"{whole.name}-{LISTED}"), read_manifest(whole)
    if (output / MANIFEST_NAME).is_file():
        return output
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    read = read_checkpoint(checkpoint_of(OPUS_MT.name, CACHE))
    listed = [place * OPUS_MT.vocabulary // LISTED for place in range(LISTED)]  # 0, the end token, is the first
    short = replace(read, shortlist=tuple(listed))
    lowerings = tuple(dict.fromkeys(graph.lowering for graph in manifest.graphs))
    graphs = build_graphs(short, lowerings, precision, output, lambda _share: None)
    for name in manifest.tokenizer.files.values():
        shutil.copyfile(whole / name, output / name)
    files = {path.name: record_file(path) for path in sorted(output.iterdir())}
    described = replace(manifest, dimensions=short.dimensions, graphs=graphs, files=files)
    (output / MANIFEST_NAME).write_text(described.to_json(), encoding="utf-8")
    return output


def _quality(count: int) -> Record:
    """Scores on the test set with the tokens of the first sentences of the development set; for 0, with all there are."""
    sources, references = read_sentences(1000)
    model = open_model(_listed(count) if count else bundle_of(REFERENCE, "fp32"))
    found: Record = {"sentences": count, "tokens": model.manifest.dimensions.choices}
    for name, beam in (("greedy", 1), ("beam 4", 4)):
        options = replace(model.manifest.generation, beam_size=beam, max_length=127)
        said = model.translate(sources, options)
        found[name] = scores(said, references)["bleu"]
    return found


def _listed(count: int) -> Path:
    from dragoman.export.pipeline import ExportOptions, export_bundle

    output = CACHE / "bundles" / f"{REFERENCE.name}-fp32-listed-{count}"
    if not (output / MANIFEST_NAME).is_file():
        rows = TATOEBA.with_name("dev.tsv").read_text(encoding="utf-8").splitlines()[:count]
        text = CACHE / f"listed-{count}.txt"
        text.write_text("\n".join(line for row in rows for line in row.split("\t")[1:]), encoding="utf-8")
        export_bundle(ExportOptions(REFERENCE, output, shortlist=text, verify=False))
    return output
