"""Checkpoints that others trained with fairseq and torch: exported, equal to their reference, and served."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.bundle.manifest import Verification
from dragoman.export.pipeline import ExportOptions, ExportReport, export_bundle
from served import Caller, Server

ACCENTS = {
    "format": "torch-transformer",
    "weights": "acc_model.pt",
    "prefix": "transformer",
    "heads": 8,
    "source_embedding": "embed.char_embed.weight",
    "embedding_scale": "sqrt",
    "positions": {"weight": "embed.pos_encoding"},
    "output": {"weight": "output_proj.weight", "bias": "output_proj.bias"},
    "tokenizer": {"kind": "characters", "vocabulary": "vocab.json"},
    "tokens": {
        **{"pad": "<pad>", "start": "<s>", "end": "</s>", "unknown": "<unk>"},
        **{"source_prefix": "<s>", "source_suffix": "</s>"},
    },
}
"""What the authors of torch-ruaccent have in their code."""


def checkpoint(name: str) -> Path:
    """It lies in the directory that DRAGOMAN_TEST_CHECKPOINTS names; nothing is fetched here."""
    directory = os.environ.get("DRAGOMAN_TEST_CHECKPOINTS")
    if not directory or not (Path(directory) / name).is_dir():
        pytest.skip(f"DRAGOMAN_TEST_CHECKPOINTS names no directory with {name}")
    return Path(directory) / name


def exported(directory: Path, source: Path, texts: list[str]) -> ExportReport:
    directory.mkdir(exist_ok=True)
    (directory / "texts").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return export_bundle(ExportOptions(source, directory / "bundle", verify_file=directory / "texts"))


@pytest.fixture(scope="module")
def fairseq(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    source = checkpoint("fairseq-nqo")
    return exported(tmp_path_factory.mktemp("fairseq"), source, ["musa dunbuya", "a bɛ taa", "ne tɔgɔ ye musa"])


@pytest.fixture(scope="module")
def accents(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    source = checkpoint("torch-ruaccent")
    directory = tmp_path_factory.mktemp("torch")
    for file in source.iterdir():
        shutil.copy(file, directory)
    (directory / "dragoman.json").write_text(json.dumps(ACCENTS))
    return exported(directory, directory, ["привет мир", "мама мыла раму"])


@pytest.fixture(scope="module")
def server(fairseq: ExportReport, accents: ExportReport) -> Iterator[Server]:
    with Server.start([f"nqo={fairseq.bundle}", f"accents={accents.bundle}"]) as started:
        yield started


def all_equal(verification: Verification | None) -> bool:
    return verification is not None and all(case.identical == case.sentences for case in verification.cases)


def test_graphs_are_token_identical_to_their_reference(fairseq: ExportReport, accents: ExportReport) -> None:
    assert all_equal(fairseq.manifest.verification)
    assert all_equal(accents.manifest.verification)
    assert accents.manifest.verification is not None
    assert "nn.Transformer" in accents.manifest.verification.reference


def test_the_known_answers_are_served(server: Server) -> None:
    caller = Caller(server.grpc)
    assert caller.translate(["musa dunbuya"], model="nqo").best == ["ߡߎߛߊ߫ ߘߎ߲ߓߎߦߊ"]
    assert caller.translate(["привет мир"], model="accents").best == ["приве'т мир"]
