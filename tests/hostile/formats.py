"""Checkpoints of every source format with damaged bytes: a refusal in a line, little time, little memory."""

from __future__ import annotations

import random
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import fairseq_files
import marian_files
import opennmt_files
import torch_files
from ctranslate2_models import write_ctranslate2
from hostile.files import Commands, problem_of
from hostile.report import Row, judged

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)


def _argos(directory: Path) -> None:
    model = write_ctranslate2(directory.with_name("argos-model"), "Marian", "int8")
    directory.mkdir()
    with zipfile.ZipFile(directory / "package.argosmodel", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/metadata.json", '{"from_code": "en", "to_code": "de", "package_version": "1.0"}')
        archive.write(model / "source.spm", "package/sentencepiece.model")
        for path in model.iterdir():
            if path.suffix != ".spm":
                archive.write(path, f"package/model/{path.name}")


def _opennmt(directory: Path) -> None:
    directory.mkdir()
    opennmt_files.write(directory / "model.pt")


WRITERS: dict[tuple[str, str], Callable[[Path], object]] = {
    ("marian", "model.npz"): marian_files.write,
    ("marian", "model.bin"): lambda directory: marian_files.write(directory, kind="int8"),
    ("fairseq", "checkpoints/checkpoint_best.pt"): fairseq_files.write,
    ("fairseq", "old/checkpoint_best.pt"): lambda directory: fairseq_files.write(directory, new=False),
    ("opennmt-py", "model.pt"): _opennmt,
    ("torch-transformer", "model.pt"): lambda directory: torch_files.write(directory, torch_files.made()),
    ("ctranslate2", "model.bin"): lambda directory: write_ctranslate2(directory, "Marian", "int8"),
    ("argos", "package.argosmodel"): _argos,
}
"""Of each format and what is damaged most, its smallest real files."""


def spoil_bytes(path: Path, dice: random.Random) -> str:
    """Some bytes changed, left out, put in, or repeated; mostly where a header is, at either end."""
    raw = bytearray(path.read_bytes())
    reach = min(len(raw), dice.choice((64, 512, 4096, len(raw))))
    for _ in range(dice.choice((1, 1, 1, 2, 4, 16))):
        at = dice.randrange(max(1, min(reach, len(raw))))
        at = at if dice.random() < 0.7 else max(0, len(raw) - 1 - at)
        match dice.randrange(6):
            case 0:
                raw[at : at + 1] = dice.randbytes(1)
            case 1:
                width = dice.choice((2, 4, 8))
                raw[at : at + width] = (dice.choice(EXTREMES) % (1 << 8 * width)).to_bytes(width, "little")
            case 2:
                del raw[at : at + dice.randrange(1, 64)]
            case 3:
                raw[at:at] = dice.randbytes(dice.randrange(1, 64))
            case 4:
                del raw[at:]
            case _:
                other = dice.randrange(max(1, len(raw)))
                raw[at : at + 32] = raw[other : other + 32]
    path.write_bytes(raw)
    return "bytes"


def formats_spoilt(directory: Path, count: int, seed: int, until_s: float = float("inf")) -> Row:
    """A row for reading so many damaged checkpoints, the formats in turn."""
    dice, outcomes, wrong, number = random.Random(seed), Counter[str](), list[str](), 0
    samples = []
    for at, ((name, main), write) in enumerate(WRITERS.items()):
        write(directory / str(at))
        inside = main.replace("old/", "checkpoints/")
        files = [path.relative_to(directory / str(at)) for path in (directory / str(at)).rglob("*") if path.is_file()]
        samples.append((name, Path(inside), sorted(files), directory / str(at)))
    with Commands() as commands:
        while number < count and time.monotonic() < until_s:
            name, main_file, files, sample = samples[number % len(samples)]
            number += 1
            copy = directory / "spoilt"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(sample, copy)
            file = main_file if dice.random() < 0.8 else dice.choice(files)
            spoil_bytes(copy / file, dice)
            given = [] if name == "argos" and dice.random() < 0.5 else [name]  # recognised, or named
            found = commands.run(["read", str(copy / main_file if name in ("argos", "opennmt-py") else copy), *given])
            outcomes[f"exit {found['code']}"] += 1
            if problem := problem_of(found):
                wrong.append(f"read, {name}, {file} (number {number} of seed {seed}): {problem}")
    figures: dict[str, float | int | str] = {"seed": seed, **dict(outcomes.most_common(3))}
    return judged("spoilt checkpoints of other trainers", number, {}, wrong, figures)
