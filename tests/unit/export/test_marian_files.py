"""Marian's own files, .npz and .bin, give the logits that its mathematics, written down in numpy, gives."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from bundled_tokenizer import bundled_tokenizer

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.checkpoint.formats import CompanionFiles
from dragoman.export.verification.eager import EagerModel
from marian_files import PRE_NORM, TARGET, write

IDS, ANSWER = [2, 5, 3, 4, 0], [4, 2, 6, 0]

VARIANTS: list[dict[str, Any]] = [
    {},
    {"shared": True, "transformer_ffn_activation": "relu"},
    {"tied": False, "transformer_ffn_activation": "gelu"},
    {"tied": False, "transposed": True},  # as newer versions of Marian write it
    PRE_NORM,
    {"kind": "bin", **PRE_NORM},
    {"kind": "int8", "shared": True},
    {"kind": "int8", "tied": False},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_marians_mathematics(tmp_path: Path, variant: dict[str, Any]) -> None:
    directory, marian = write(tmp_path / "model", **variant)
    checkpoint = read_checkpoint(directory)
    ours = EagerModel(checkpoint.model, checkpoint.tokens).log_probs(IDS, ANSWER)
    np.testing.assert_allclose(ours[:, : len(TARGET)], marian.log_probs(IDS, ANSWER), atol=5e-5)
    assert np.isneginf(ours[:, len(TARGET)]).all()  # the row that the decoder starts from is no token


def test_decoder_yml_is_what_a_bundle_decodes_with(tmp_path: Path) -> None:
    generation = read_checkpoint(write(tmp_path / "model")[0]).generation
    assert (generation.beam_size, generation.length_penalty, generation.bad_words) == (6, 0.6, ((1,),))


def test_unknown_tokens_are_generated_only_if_decoder_yml_allows_them(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model", decoder=f"{NAMED}beam-size: 4\nallow-unk: true\nnormalize: true\n")
    generation = read_checkpoint(directory).generation
    assert (generation.beam_size, generation.length_penalty, generation.bad_words) == (4, 1.0, ())


def test_a_sentencepiece_model_is_vocabulary_and_tokenizer(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model", shared=True, decoder="vocabs: [vocab.spm, vocab.spm]\n")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab cd", "dcba"]),
        model_prefix=str(directory / "vocab"),
        model_type="char",
        vocab_size=len(TARGET),
        **{"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1, "minloglevel": 2},  # as Marian trains it
    )
    (directory / "vocab.model").rename(directory / "vocab.spm")
    checkpoint = read_checkpoint(directory)
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    ids = tokenizer.encode("ab x")
    assert (len(ids), ids[-2:]) == (6, [1, 0])
    assert tokenizer.decode(tokenizer.encode("dab ca")) == "dab ca"


def test_vocabularies_make_the_tokenizer(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "model")[0] / "model.npz")
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    assert tokenizer.encode('drei vier"s </s> sechs') == [4, 5, 1, 1, 0]
    assert tokenizer.decode([2, 6, 0, 7]) == "one five"


def test_pieces_of_moses_need_its_languages(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model")
    pieces = ["</s>", "<unk>", "it", "&apos;s", "@-@", "five"]
    (directory / "vocab.src.yml").write_text("".join(f'"{piece}": {at}\n' for at, piece in enumerate(pieces)))
    with pytest.raises(CheckpointError, match="--moses en-de"):
        read_checkpoint(directory)
    checkpoint = read_checkpoint(directory, companions=CompanionFiles(moses="en-de"))
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    assert tokenizer.encode("it's five-it x") == [2, 3, 5, 4, 2, 1, 0]


NAMED = "vocabs: [vocab.src.yml, vocab.trg.yml]\n"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"transformer_decoder_autoreg": "rnn"}, "SSRU.*use the model that it was trained from"),
    ({"type": "s2s"}, "type 's2s'"),
    ({"transformer_ffn_depth": 3}, "transformer-ffn-depth: 3"),
    ({"transformer_ffn_activation": "tanh"}, "'tanh'"),
    ({"transformer_postprocess": "dah"}, "norms"),
    ({"transformer_no_projection": "true"}, "transformer-no-projection"),
    ({"transformer_train_position_embeddings": "true"}, "transformer-train-position-embeddings"),
    ({"transformer_tied_layers": [1, 1]}, "transformer-tied-layers"),
    ({"transformer_heads": 3}, "3 heads"),
    ({"dim_emb": "wide"}, "dim-emb"),
    ({"dim_emb": 8}, "misshaped"),
    ({"enc_depth": 3}, "missing: encoder_l3"),
    ({"dec_depth": 999999999}, "decoder_layers"),
    ({"decoder": f"{NAMED}word-penalty: 0.5\n"}, "word-penalty"),
    ({"decoder": f"{NAMED}beam-size: many\n"}, "beam-size"),
    ({"decoder": "vocabs: [missing.yml, vocab.trg.yml]\n"}, r"missing\.yml .*source vocabulary"),
    ({"decoder": "vocabs: [vocab.trg.yml, vocab.src.yml]\n"}, r"vocab\.trg\.yml has ids up to 6"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    directory, _ = write(tmp_path / "model", **changes)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(directory, format_name="marian")


def test_missing_vocabularies_are_named(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model")
    for name in ("decoder.yml", "vocab.src.yml", "vocab.trg.yml"):
        (directory / name).unlink()
    with pytest.raises(CheckpointError, match=r"vocabularies of model\.npz are missing"):
        read_checkpoint(directory)


def test_an_invalid_vocabulary_is_reported_with_its_line(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model")
    (directory / "vocab.src.yml").write_text('"</s>": 0\nnonsense\n')
    with pytest.raises(CheckpointError, match="line 2"):
        read_checkpoint(directory)


def test_two_pieces_with_one_id_are_refused(tmp_path: Path) -> None:
    directory, _ = write(tmp_path / "model")
    (directory / "vocab.src.yml").write_text('"</s>": 0\n"<unk>": 1\n"a": 1\n')
    with pytest.raises(CheckpointError, match=r"vocab\.src\.yml gives one id to two pieces"):
        read_checkpoint(directory)


def replaced(content: bytes, offset: int, form: str, value: int) -> bytes:
    new = struct.pack(form, value)
    return content[:offset] + new + content[offset + len(new) :]


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda content: content[:-100], "truncated"),
    (lambda content: content[:40], "truncated"),
    (lambda content: replaced(content, 0, "<Q", 2), "version"),
    (lambda content: b"GIF89a" + content[6:], "not a model of Marian"),
    (lambda content: replaced(content, 8, "<Q", 1 << 60), "promises"),
    (lambda content: replaced(content, 16, "<Q", 1 << 60), "too long"),
    (lambda content: replaced(content, 24, "<Q", 0x7777), "0x7777"),
    (lambda content: replaced(content, 32, "<Q", 1 << 50), "too long"),
    (lambda content: replaced(content, 40, "<Q", 1 << 50), "ends after the file"),
    (lambda content: replaced(content, 16 + 32 + 24, "<Q", 4), "needs more than its 4 bytes"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_binary_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = write(tmp_path / "model", kind="bin")[0] / "model.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path, format_name="marian")


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model")[0] / "model.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez_compressed(path, **arrays)
    with pytest.raises(CheckpointError, match="compressed"):
        read_checkpoint(path)
    np.savez(path, **{**arrays, "decoder_Wemb": np.array([{}], dtype=object)})
    with pytest.raises(CheckpointError, match="not an ordinary array"):
        read_checkpoint(path)
    with zipfile.ZipFile(path, "w") as archive:  # a header that promises a terabyte
        archive.writestr(
            "special:model.yml.npy",
            b"\x93NUMPY\x01\x00v\x00"
            + b"{'descr': '|i1', 'fortran_order': False, 'shape': (1000000000000,)}".ljust(117)
            + b"\n",
        )
    with pytest.raises(CheckpointError, match="not an ordinary array"):
        read_checkpoint(path)
    os.truncate(path, 60)
    with pytest.raises(CheckpointError, match=r"Marian|truncated"):
        read_checkpoint(path, format_name="marian")
