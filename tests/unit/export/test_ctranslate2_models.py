"""Models of CTranslate2 give token for token what CTranslate2 gives in float32: greedy and beam, alone and in a batch."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundled_tokenizer import bundled_tokenizer
from same_answers import assert_same_searches, sources

from ctranslate2_models import CTRANSLATE2_FAMILIES, write_ctranslate2
from dragoman.export.checkpoint import Checkpoint, TokenLimits, read_checkpoint
from dragoman.export.verification.ctranslate2_model import CTranslate2Original
from dragoman.export.verification.eager import EagerModel, threads_for

SHAPES: list[tuple[str, str | None, dict[str, Any]]] = [
    *((family, "int8", {}) for family in CTRANSLATE2_FAMILIES),
    *(("Marian", stored, {}) for stored in (None, "int16", "float16", "bfloat16", "int8_float16")),
    ("Marian", "int8", {"encoder_layers": 3, "decoder_attention_heads": 2, "activation_function": "relu"}),
    ("NLLB", None, {"scale_embedding": False}),
    ("BART", None, {"activation_function": "gelu_new"}),
    ("T5", None, {"d_kv": 7, "num_heads": 5, "tie_word_embeddings": False}),
]


def assert_same_answers(directory: Path, checkpoint: Checkpoint, batch: list[list[int]]) -> None:
    judge = CTranslate2Original(directory, checkpoint.config, checkpoint.tokens)
    ours = EagerModel(checkpoint.model, checkpoint.tokens)
    assert ours.generate(batch, checkpoint.generation) == judge.generate(batch, checkpoint.generation)


@pytest.mark.parametrize(("family", "stored", "shape"), SHAPES, ids=str)
def test_answers_are_those_of_ctranslate2(tmp_path: Path, family: str, stored: str | None, shape: dict[str, Any]) -> None:
    directory = write_ctranslate2(tmp_path / "model", family, stored, shape=shape)
    checkpoint = read_checkpoint(directory)
    theirs = CTranslate2Original(directory, checkpoint.config, checkpoint.tokens)
    ours = EagerModel(checkpoint.model, checkpoint.tokens)
    expected = assert_same_searches(theirs, ours, checkpoint)
    for source, target in zip(sources(checkpoint), expected, strict=True):
        masked = theirs.log_probs(source, target)
        found = ours.log_probs(source, target)
        assert (np.isneginf(masked) == np.isneginf(found)).all()
        np.testing.assert_allclose(found[np.isfinite(found)], masked[np.isfinite(masked)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", CTRANSLATE2_FAMILIES)
def test_the_tokenizer_and_the_languages_are_those_of_the_vocabulary(tmp_path: Path, family: str) -> None:
    directory = write_ctranslate2(tmp_path / "model", family)
    checkpoint = read_checkpoint(directory)
    written = tmp_path / "tokenizer"
    tokenizer = bundled_tokenizer(checkpoint, written)
    words = json.loads((directory / "shared_vocabulary.json").read_text())
    *body, last = tokenizer.encode("Where is it?")
    assert last == checkpoint.tokens.eos == words.index("</s>")
    spelled = "".join(words[index] for index in body).replace("▁", " ").replace("Ġ", " ").strip()
    if family not in ("Marian", "M2M100"):  # whose small vocabularies do not have all pieces
        assert spelled == "Where is it?"
        assert tokenizer.decode(body).strip() == "Where is it?"
    assert (checkpoint.languages is not None) == (family in ("NLLB", "M2M100", "mBART", "mBART-50"))
    if checkpoint.languages is not None:
        for code, token in checkpoint.languages.tokens.items():
            assert words[token].strip("_") == code


def test_a_narrow_model_is_computed_on_one_thread_and_the_others_come_back(tmp_path: Path) -> None:
    model = read_checkpoint(write_ctranslate2(tmp_path / "model", "BART")).model
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads_for(model.config.d_model):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with threads_for(512):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_gelu_with_a_sigmoid_is_that_of_ctranslate2(tmp_path: Path) -> None:
    """No converter of transformers writes it for these families: the code of gelu in a model is changed to it."""
    directory = write_ctranslate2(tmp_path / "model", "BART", shape={"activation_function": "gelu"})
    content = bytearray((directory / "model.bin").read_bytes())
    for side in (b"encoder", b"decoder"):
        name = side + b"/activation\0"
        place = content.index(struct.pack("<H", len(name)) + name) + 2 + len(name)  # rank 0, type, length, the code
        assert content[place + 6] == 3
        content[place + 6] = 4
    (directory / "model.bin").write_bytes(content)
    checkpoint = read_checkpoint(directory)
    assert checkpoint.config.activation == "gelu_sigmoid"
    batch = sources(checkpoint)
    assert_same_answers(directory, checkpoint, batch)
    target = tuple(batch[1])
    theirs = CTranslate2Original(directory, checkpoint.config, checkpoint.tokens).log_probs(batch[0], target)
    ours = EagerModel(checkpoint.model, checkpoint.tokens).log_probs(batch[0], target)
    np.testing.assert_allclose(ours[np.isfinite(ours)], theirs[np.isfinite(theirs)], rtol=1e-4, atol=1e-4)


def test_a_vocabulary_map_changes_nothing(tmp_path: Path) -> None:
    """CTranslate2 uses it only when it is told to."""
    directory = write_ctranslate2(tmp_path / "model", "Marian")
    before = read_checkpoint(directory)
    (directory / "vmap.txt").write_text("\t▁5 ▁6\n▁7\t▁8\n", encoding="utf-8")
    after = read_checkpoint(directory)
    assert after.tokenizer_plan == before.tokenizer_plan
    assert_same_answers(directory, after, sources(after))


def test_two_vocabularies_have_ids_of_their_own(tmp_path: Path) -> None:
    directory = write_ctranslate2(
        tmp_path / "model", "Marian", shape={"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 253}
    )
    shared = json.loads((directory / "shared_vocabulary.json").read_text())
    moved = [shared[0], shared[2], shared[1], *shared[3:]]
    (directory / "source_vocabulary.json").write_text(json.dumps(moved))
    (directory / "target_vocabulary.json").write_text(json.dumps(shared))
    (directory / "shared_vocabulary.json").unlink()
    checkpoint = read_checkpoint(directory)
    assert not checkpoint.config.shared_embeddings
    assert (checkpoint.config.source_vocabulary, checkpoint.config.target_vocabulary) == (252, 253)
    written = tmp_path / "tokenizer"
    tokenizer = bundled_tokenizer(checkpoint, written)
    assert tokenizer.encode("\u4e00")[-2:] == [moved.index("<unk>"), moved.index("</s>")]
    assert_same_answers(directory, checkpoint, sources(checkpoint))


@pytest.mark.parametrize(
    ("flags", "around"),
    [({"add_source_eos": True}, (0, 1)), ({"add_source_bos": True, "bos_token": "▁9"}, (1, 1)), ({}, (0, 1))],
    ids=str,
)
def test_sources_get_the_tokens_of_the_settings_once(tmp_path: Path, flags: dict[str, Any], around: tuple[int, int]) -> None:
    directory = write_ctranslate2(tmp_path / "model", "Marian", **flags)
    checkpoint = read_checkpoint(directory)
    entry = checkpoint.tokenizer
    assert (len(entry.source_prefix), len(entry.source_suffix)) == around
    assert_same_answers(directory, checkpoint, [[*entry.source_prefix, 12, 20, 31, *entry.source_suffix]])


def test_sources_of_a_model_that_opennmt_trained_end_without_an_end_token(tmp_path: Path) -> None:
    directory = write_ctranslate2(tmp_path / "model", "Marian")
    words = json.loads((directory / "shared_vocabulary.json").read_text())
    (directory / "shared_vocabulary.json").write_text(json.dumps([*words[:-1], "<blank>"]))
    assert read_checkpoint(directory).tokenizer.source_suffix == ()


def test_a_model_without_stored_positions_has_computed_ones(tmp_path: Path) -> None:
    """As OpenNMT's converters leave them out: sinusoids that begin with the position 1."""
    directory = write_ctranslate2(tmp_path / "model", "Marian")
    remove(directory / "model.bin", "position_encodings/encodings")
    checkpoint = read_checkpoint(directory, TokenLimits(90, 70))
    assert (checkpoint.dimensions.max_source_tokens, checkpoint.dimensions.max_target_tokens) == (90, 70)
    assert_same_answers(directory, checkpoint, sources(checkpoint))


def test_an_older_vocabulary_is_a_text_file(tmp_path: Path) -> None:
    directory = write_ctranslate2(tmp_path / "model", "Marian")
    before = read_checkpoint(directory)
    words = json.loads((directory / "shared_vocabulary.json").read_text())
    (directory / "shared_vocabulary.json").unlink()
    (directory / "shared_vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    assert read_checkpoint(directory).tokenizer_plan == before.tokenizer_plan


def test_the_sentencepiece_model_can_lie_elsewhere(tmp_path: Path) -> None:
    from dragoman.export.checkpoint import CompanionFiles

    directory = write_ctranslate2(tmp_path / "model", "Marian")
    elsewhere = tuple(Path(shutil.move(directory / name, tmp_path / name)) for name in ("source.spm", "target.spm"))
    checkpoint = read_checkpoint(directory, companions=CompanionFiles(sentencepiece=elsewhere))
    assert tuple(checkpoint.tokenizer_plan.copied.values()) == elsewhere


def remove(path: Path, ending: str) -> None:
    """Write model.bin anew without the variables and aliases of that name."""
    content = path.read_bytes()
    at = 4 + 2 + struct.unpack_from("<H", content, 4)[0] + 4
    head = content[:at]

    def text(start: int) -> tuple[str, int]:
        length = struct.unpack_from("<H", content, start)[0]
        return content[start + 2 : start + 1 + length].decode(), start + 2 + length

    kept: list[list[bytes]] = []
    for is_alias in (False, True):
        (count,) = struct.unpack_from("<I", content, at)
        at += 4
        kept.append([])
        for _ in range(count):
            begin = at
            name, at = text(at)
            if is_alias:
                _, at = text(at)
            else:
                rank = content[at]
                (size,) = struct.unpack_from("<I", content, at + 1 + 4 * rank + 1)
                at += 1 + 4 * rank + 1 + 4 + size
            if not name.endswith(ending):
                kept[-1].append(content[begin:at])
    path.write_bytes(head + b"".join(struct.pack("<I", len(one)) + b"".join(one) for one in kept))
