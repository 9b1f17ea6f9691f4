"""A real Argos package, Chinese to English: the answer that is known, and every token CTranslate2's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bundled_tokenizer import bundled_tokenizer

from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.verification.eager import EagerModel

SENTENCES = ("今天天气很好，我们去公园散步吧。", "你叫什么名字？", "2023年的价格是25.5元。")
KNOWN = "It's a nice day. Let's go for a walk in the park."


@pytest.fixture(scope="module")
def argos() -> Checkpoint:
    """The package lies in the directory that DRAGOMAN_TEST_CHECKPOINTS names; nothing is fetched here."""
    directory = os.environ.get("DRAGOMAN_TEST_CHECKPOINTS")
    found = sorted(Path(directory).glob("argos-zh-en/*.argosmodel")) if directory else []
    if not found:
        pytest.skip("DRAGOMAN_TEST_CHECKPOINTS names no directory with argos-zh-en/*.argosmodel")
    return read_checkpoint(found[0])


def test_a_real_package_translates_as_is_known(argos: Checkpoint, tmp_path: Path) -> None:
    tokenizer = bundled_tokenizer(argos, tmp_path)
    model = EagerModel(argos.model, argos.tokens)
    answers = model.generate([tokenizer.encode(text) for text in SENTENCES], argos.generation)
    assert tokenizer.decode(answers[0]) == KNOWN
    assert (argos.card.source_language, argos.card.target_language) == ("zh", "en")


def test_a_real_package_answers_as_ctranslate2_does(argos: Checkpoint, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from dragoman.export.verification.ctranslate2_model import CTranslate2Original

    tokenizer = bundled_tokenizer(argos, tmp_path)
    sources = [tokenizer.encode(text) for text in SENTENCES]
    assert argos.reference is not None
    judge = CTranslate2Original(argos.reference.path, argos.config, argos.tokens)
    assert EagerModel(argos.model, argos.tokens).generate(sources, argos.generation) == judge.generate(
        sources, argos.generation
    )
