"""Shortlists of single languages in NLLB's size: `python -m benchmarks --only language_shortlists`.

Speed: the same bundle with a list, and with the whole vocabulary. Mixed: sentences into eight languages decoded in the same
steps, and those of one language after those of another, in turn. Which tokens a list has makes no difference to the time.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.bundles import bundle_of
from benchmarks.cells import Grid, checkpoint_of, fixed_sources
from benchmarks.offline import interleave
from benchmarks.peers import CACHE
from benchmarks.random_families import FAMILY_SHAPES
from benchmarks.statistics import Spread, ratios
from benchmarks.worker_process import Worker, worker
from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, read_manifest

__all__ = ["language_shortlists_table", "measure_language_shortlists"]

NLLB = FAMILY_SHAPES["random-nllb-600m"]
LANGUAGES, SHARED, OWN = 8, 4_096, 8_192
"""Lists, the tokens that all of them have, and those that each has besides."""
SOURCE_TOKENS, TARGET_TOKENS = 20, 24
CELLS = ((1, 1), (1, 8), (1, 32), (4, 1), (4, 8))  # beam, batch
MIXED = ((1, 8), (1, 32), (4, 8))

Record = dict[str, Any]
Run = Callable[[], Record]


def measure_language_shortlists(grid: Grid) -> dict[str, Any]:
    """Times with a list and without one, and of mixed languages together and apart; in int8, on one thread."""
    bundle = _listed_bundle()
    with worker(Path(sys.executable), "dragoman_side", 1) as side:
        side.ask("load", model=str(bundle), precision="int8", threads=1)
        speed = [_speed(side, beam, batch, grid) for beam, batch in CELLS]
        mixed = [_mixed(side, beam, batch, grid) for beam, batch in MIXED]
        memory = side.ask("memory")
    return {"speed": speed, "mixed": mixed, "weights_bytes": _weights(bundle), "memory": memory}


def language_shortlists_table(figures: dict[str, Any]) -> str:
    lines = [
        f"{NLLB.vocabulary:,} words, {LANGUAGES} lists of {SHARED + OWN:,} tokens, of which they share {SHARED:,}; int8, "
        f"{SOURCE_TOKENS} and {TARGET_TOKENS} tokens, one thread.",
        "",
        "| beam | batch | whole vocabulary, ms a sentence | list | ratio |",
        "|---|---|---|---|---|",
        *(_row(one, "whole_s", "listed_s") for one in figures["speed"]),
        "",
        f"| beam | batch | {LANGUAGES} languages apart, ms a sentence | in the same steps | ratio |",
        "|---|---|---|---|---|",
        *(_row(one, "apart_s", "together_s") for one in figures["mixed"]),
        "",
        "Weights: " + ", ".join(f"{size / 1e6:.0f} MB {name}" for name, size in figures["weights_bytes"].items()) + ".",
    ]
    return "\n".join(lines)


def _row(one: Record, slow: str, fast: str) -> str:
    times = " | ".join(f"{one[side] * 1000:.1f}" for side in (slow, fast))
    return f"| {one['beam']} | {one['batch']} | {times} | {Spread(**one['wall_ratio'])} |"


def _speed(side: Worker, beam: int, batch: int, grid: Grid) -> Record:
    asked = _asked(beam, batch)
    count = len(asked["sources"])
    return _compared(
        lambda: side.ask("run", **asked, shortlists=[1] * count),
        lambda: side.ask("run", **asked),
        ("listed_s", "whole_s"),
        (beam, batch),
        grid,
    )


def _mixed(side: Worker, beam: int, batch: int, grid: Grid) -> Record:
    asked = _asked(beam, batch)
    asked["shortlists"] = [1 + at % LANGUAGES for at in range(len(asked["sources"]))]
    return _compared(
        lambda: side.ask("run", **asked),
        lambda: side.ask("run", **asked, apart=True),
        ("together_s", "apart_s"),
        (beam, batch),
        grid,
    )


def _asked(beam: int, batch: int) -> dict[str, Any]:
    sources = fixed_sources(max(batch, 4), SOURCE_TOKENS, NLLB.vocabulary, eos=NLLB.eos)
    return {"sources": sources, "batch": batch, "beam": beam, "target_tokens": TARGET_TOKENS}


def _compared(fast: Run, slow: Run, names: tuple[str, str], cell: tuple[int, int], grid: Grid) -> Record:
    (beam, batch) = cell
    ours, theirs = interleave(fast, slow, grid)
    times = {name: [run["wall_s"] for run in runs] for name, runs in zip(names, (ours, theirs), strict=True)}
    return {
        **{"beam": beam, "batch": batch, "rounds": len(ours)},
        **{name: sorted(walls)[len(walls) // 2] / max(batch, 4) for name, walls in times.items()},
        "wall_ratio": asdict(ratios(times[names[1]], times[names[0]])),
    }


def _listed_bundle() -> Path:
    """The bundle with lists of evenly spread tokens: random weights have no text to take them from."""
    from dragoman.export.checkpoint import read_checkpoint
    from dragoman.export.graphs import build_graphs

    checkpoint = checkpoint_of(NLLB.name, CACHE)
    whole = bundle_of(checkpoint, "int8")
    output, manifest = whole.with_name(f"{whole.name}-{LANGUAGES}-lists"), read_manifest(whole)
    if (output / MANIFEST_NAME).is_file():
        return output
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    read = read_checkpoint(checkpoint)
    if read.languages is None:
        raise ValueError(f"{checkpoint} has no languages")
    shared = range(4, 4 + SHARED)
    room = (NLLB.vocabulary - 4 - SHARED) // OWN
    lists = {
        code: tuple(sorted({2, *shared, *(4 + SHARED + room * token + at for token in range(OWN))}))
        for at, code in enumerate(list(read.languages.tokens)[:LANGUAGES])
    }
    graphs = build_graphs(replace(read, shortlists=lists), ("native",), "int8", output, lambda _share: None)
    for name in manifest.tokenizer.files.values():
        shutil.copyfile(whole / name, output / name)
    files = {path.name: record_file(path) for path in sorted(output.iterdir())}
    counts = {code: len(tokens) for code, tokens in lists.items()}
    described = replace(manifest, graphs=graphs, files=files, shortlists=counts)
    (output / MANIFEST_NAME).write_text(described.to_json(), encoding="utf-8")
    return output


def _weights(listed: Path) -> dict[str, int]:
    whole = listed.with_name(listed.name.removesuffix(f"-{LANGUAGES}-lists"))
    return {"with the lists": (listed / "weights.bin").stat().st_size, "without": (whole / "weights.bin").stat().st_size}
