"""The exports of other families and formats that README.md, the guides and `--help` show, as they are, on random models.

`test_command_examples` pastes those of Marian models into bash; here the command runs in this process, which need not
import torch for each of them.
"""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairseq_files
import marian_files
import opennmt_files
from ctranslate2_models import write_ctranslate2
from dragoman.bundle.manifest import read_manifest
from dragoman.cli import main
from random_families import FAMILIES
from random_marian import REFERENCE_MODEL
from shown_commands import shown_commands

PAGES = ("README.md", *(f"docs/{page}.md" for page in ("bundle", "export", "formats")))
RANDOM = ["--max-quality-loss", "100", "--max-target-tokens", "12"]
"""Random weights end no sentence, and int8 changes their answers at will."""
ONE_LAYER: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}
ONE_T5: dict[str, Any] = {"num_layers": 1, "num_decoder_layers": 1}


def family(name: str, shape: dict[str, Any]) -> Callable[[Path], object]:
    return lambda place: FAMILIES[name].write(place, **shape)


def fairseq_with_its_data(place: Path) -> None:
    """`checkpoints/checkpoint_best.pt`, and `data` beside it."""
    fairseq_files.write(place.parents[1])


def fairseq_apart(place: Path) -> None:
    """The model without its dictionaries and codes, which are named on the command line."""
    written = fairseq_files.write(place.parent / "written")
    shutil.copytree(written / "checkpoints", place)
    for named in ("data-bin", "data-bin/wmt.en-fr"):
        shutil.copytree(written / "data", place.parent / named, dirs_exist_ok=True)
    shutil.move(written / "data" / "bpe.codes", place.parent / "bpe.codes")
    shutil.rmtree(written)


def ctranslate2_without_its_tokenizer(place: Path) -> None:
    write_ctranslate2(place, "NLLB", shape=ONE_LAYER)
    shutil.move(place / "sentencepiece.bpe.model", place.parent)


def argos(place: Path) -> None:
    """A package of Argos Translate."""
    model, name = write_ctranslate2(place.with_name("packed"), "Marian", shape=ONE_LAYER), place.stem
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(f"{name}/metadata.json", json.dumps({"from_code": "zh", "to_code": "en"}))
        archive.write(model / "source.spm", f"{name}/sentencepiece.model")
        for file in ("model.bin", "config.json", "shared_vocabulary.json"):
            archive.write(model / file, f"{name}/model/{file}")


def opennmt_without_its_tokenizer(place: Path) -> None:
    source, target = ["▁Where", "▁is", "▁the"], ["▁Where", "▁is", "▁it", "."]
    opennmt_files.write(place, vocab={"src": [*opennmt_files.SPECIALS, *source], "tgt": [*opennmt_files.SPECIALS, *target]})
    shutil.copyfile(REFERENCE_MODEL / "source.spm", place.with_name("sentencepiece.model"))


CHECKPOINTS: dict[str, Callable[[Path], object]] = {
    "nllb-200-distilled-600M": family("NLLB", ONE_LAYER),
    "t5-base": family("T5", ONE_T5),
    "flan-t5-base": family("T5 1.1", ONE_T5),
    "bart-large-cnn": family("BART", ONE_LAYER),
    "nllb-200-ct2": ctranslate2_without_its_tokenizer,
    "checkpoints/checkpoint_best.pt": fairseq_with_its_data,
    "wmt-model": fairseq_apart,
    "en-fr-marian": marian_files.write,
    "translate-zh_en-1_9.argosmodel": argos,
    "model_step_100000.pt": opennmt_without_its_tokenizer,
}


def exports() -> list[str]:
    """Exports take seconds: of those of a checkpoint with the same flags, the first."""
    lines = [line for line in shown_commands(("export",), PAGES) if line.split()[2] in CHECKPOINTS]
    lines = [line for line in lines if "tensorrt" not in line]
    kinds = [(line.split()[2], [word for word in line.split() if word.startswith("--")]) for line in lines]
    return [line for at, line in enumerate(lines) if kinds[at] not in kinds[:at]]


LINES = exports()


@pytest.mark.parametrize("line", LINES)
def test_an_export_of_another_family_works_as_it_is_shown(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    CHECKPOINTS[words[1]](tmp_path / words[1])
    for file in ("news.de", "news.fr", "t.fr"):
        (tmp_path / file).write_text("Where is the station?\nIt is raining.\n", encoding="utf-8")
    assert main([*words, *RANDOM]) == 0, capsys.readouterr().err
    bundle = tmp_path / words[words.index("--output") + 1]
    manifest = read_manifest(bundle)
    assert manifest.verification is not None
    assert manifest.precision == ("int8" if "int8" in words else "fp32")
    assert len(manifest.shortlists) == words.count("--shortlist")
    if "--task-prefix" in words:
        assert manifest.tasks.default_prefix == words[words.index("--task-prefix") + 1]


def test_every_checkpoint_is_in_an_example() -> None:
    assert {line.split()[2] for line in LINES} == CHECKPOINTS.keys()
