"""Checkpoints of OpenNMT-py give the logits of torch's own pre-norm layers with the same weights."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundled_tokenizer import bundled_tokenizer

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.checkpoint.formats import CompanionFiles
from dragoman.export.verification.eager import EagerModel
from opennmt_files import SOURCE, SPECIALS, TARGET, Layers, write


@pytest.mark.parametrize(("bias", "positions", "old"), [(True, True, True), (False, False, False)])
def test_logits_are_those_of_torchs_layers(tmp_path: Path, bias: bool, positions: bool, old: bool) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "model.pt", bias=bias, positions=positions, old=old))
    source, target = [4, 6, 5, 4], [5, 7, 4, 3]
    with torch.inference_mode():
        theirs = Layers(bias).eval()(torch.tensor([source]), torch.tensor([[2, *target[:-1]]]))[0].log_softmax(-1)
    ours = EagerModel(checkpoint.model, checkpoint.tokens).log_probs(source, target)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)


def test_words_are_tokens_and_nothing_is_added_to_sources(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "model.pt"))
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    assert tokenizer.encode("drei ein <s> vier") == [6, 4, 0, 0]
    assert tokenizer.decode([4, 7, 3]) == "one four"


def test_each_side_has_an_unknown_token_of_its_own(tmp_path: Path) -> None:
    vocab = {"src": ["<blank>", "<unk>", "ein", "zwei", "drei", "vier", "elf"], "tgt": TARGET}
    checkpoint = read_checkpoint(write(tmp_path / "model.pt", vocab=vocab))
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    assert (tokenizer.encode("ein acht"), tokenizer.encode_target("one eight")) == ([2, 1], [4, 0])


def test_pieces_of_moses_need_its_languages(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt", vocab={"src": [*SPECIALS, "it", "&apos;s", "@-@"], "tgt": TARGET})
    with pytest.raises(CheckpointError, match="--moses en-de"):
        read_checkpoint(path)
    checkpoint = read_checkpoint(path, companions=CompanionFiles(moses="en-de"))
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    assert tokenizer.encode("it's it-it") == [4, 5, 4, 6, 4]


class Kept:
    def __init__(self, **state: object) -> None:
        self.__dict__.update(state)


def test_vocabularies_of_torchtext_are_read_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {}
    for module, name in (
        ("torchtext.vocab", "Vocab"),
        ("torchtext.data.field", "Field"),
        ("onmt.inputters.text_dataset", "TextMultiField"),
    ):
        kinds[name] = type(name, (Kept,), {"__module__": module})
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), types.ModuleType(module))
        setattr(sys.modules[module], name, kinds[name])
    vocab = {
        side: kinds["TextMultiField"](fields=[(side, kinds["Field"](vocab=kinds["Vocab"](itos=pieces)))])
        for side, pieces in (("src", SOURCE), ("tgt", TARGET))
    }
    path = write(tmp_path / "model.pt", vocab=vocab)
    pairs = write(
        tmp_path / "older.pt",
        vocab=[(side, kinds["Vocab"](itos=pieces)) for side, pieces in (("src", SOURCE), ("tgt", TARGET))],
    )
    expected = read_checkpoint(write(tmp_path / "lists.pt")).tokenizer_plan
    assert read_checkpoint(path).tokenizer_plan == read_checkpoint(pairs).tokenizer_plan == expected


PIECES = {"src": [*SPECIALS, "▁ein", "▁zwei", "s"], "tgt": TARGET}
MARKED = {"src": [*SPECIALS, "ein@@", "zwei", "s"], "tgt": TARGET}
JOINED = {"src": [*SPECIALS, "ein￭", "zwei", "s"], "tgt": TARGET}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_relative_positions": 20}, "max_relative_positions=20 .*relative or rotary"),
    ({"max_relative_positions": -1}, "max_relative_positions=-1"),
    ({"encoder_type": "brnn"}, "encoder_type='brnn'"),
    ({"self_attn_type": "average"}, "self_attn_type='average'"),
    ({"layer_norm": "rms"}, "layer_norm='rms'"),
    ({"copy_attn": True}, "copy_attn=True"),
    ({"position_encoding_type": "SinusoidalConcat"}, "SinusoidalConcat"),
    ({"pos_ffn_activation_fn": "gated-silu"}, "'gated-silu'"),
    ({"heads": 3}, "3 heads"),
    ({"layers": 3}, "missing: encoder.transformer.2"),
    ({"transformer_ff": 20}, "misshaped"),
    ({"vocab": {"src": [*SOURCE, "vier"], "tgt": TARGET}}, "ids up to 7, the embedding has 7 rows"),
    ({"vocab": {"src": SOURCE, "tgt": ["<unk>", "one"]}}, "lacks <blank>"),
    ({"vocab": {"src": SOURCE}}, "no list of pieces for 'tgt'"),
    ({"vocab": 7}, "neither a mapping"),
    ({"vocab": PIECES}, "--spm"),
    ({"vocab": MARKED}, "--bpe-codes"),
    ({"vocab": JOINED}, "OpenNMT Tokenizer"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(write(tmp_path / "model.pt", **changes))


def test_codes_are_taken_from_where_they_are_named(tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\ne i\nei n\n")
    checkpoint = read_checkpoint(write(tmp_path / "model.pt", vocab=MARKED), companions=CompanionFiles(bpe_codes=codes))
    tokenizer = bundled_tokenizer(checkpoint, tmp_path / "bundle")
    assert tokenizer.encode("eins") == [4, 6]


class Runs:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.marker),)


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt", extra=Runs(tmp_path / "it ran"))
    with pytest.raises(CheckpointError, match=r"mkdir.*nothing of it was run"):
        read_checkpoint(path)
    assert not (tmp_path / "it ran").exists()


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model.pt")
    os.truncate(path, path.stat().st_size - 300)
    with pytest.raises(CheckpointError, match=r"truncated or corrupt|no format"):
        read_checkpoint(path)
