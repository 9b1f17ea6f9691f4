"""From nothing to a server: a Transformer learns a task, is saved, exported, served, and gives exact answers."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

import reversing
from dragoman.export.pipeline import ExportOptions, export_bundle
from served import Caller, Server


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    sentences = directory / "sentences.txt"
    sentences.write_text("abc\nhgfedc\na\nbadcab\n")
    model = reversing.save(directory / "model", reversing.trained())
    report = export_bundle(ExportOptions(model, directory / "bundle", verify_file=sentences, lowering="native"))
    assert report.manifest.verification is not None
    return report.bundle


def test_a_model_trained_from_nothing_is_served_exactly(bundle: Path) -> None:
    every = ["".join(letters) for count in (1, 2) for letters in itertools.product(reversing.LETTERS, repeat=count)]
    chosen = random.Random(5)
    every += ["".join(chosen.choices(reversing.LETTERS, k=chosen.randint(3, reversing.LONGEST))) for _ in range(40)]
    with Server.start([f"reverse={bundle}"]) as server:
        answer = Caller(server.grpc).translate(every)
    assert answer.best == [text[::-1] for text in every]
