"""Checkpoints of fairseq, old and new, give the logits of the same model in transformers; what is missing is named."""

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
import transformers
from bundled_tokenizer import bundled_tokenizer
from torch import Tensor

from dragoman.bundle.tokenizer import Tokenizer
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.checkpoint.formats import CompanionFiles
from dragoman.export.verification.eager import EagerModel
from fairseq_files import HEADS, INNER, LAYERS, SETTINGS, SOURCE, TARGET, WIDTH, hydra, old_names, weights, write


def in_transformers(tensors: dict[str, Tensor]) -> transformers.M2M100ForConditionalGeneration:
    """M2M100 is fairseq's pre-norm Transformer with one embedding."""
    rows = len(tensors["decoder.embed_tokens.weight"])
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", LAYERS), ("ffn_dim", INNER), ("attention_heads", HEADS))
    }
    config = transformers.M2M100Config(
        vocab_size=rows,
        d_model=WIDTH,
        max_position_embeddings=40,
        scale_embedding=True,
        attn_implementation="eager",
        **sides,
    )
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    named = {f"model.{name}": tensor for name, tensor in tensors.items() if "version" not in name and "_float" not in name}
    embedding = named.pop("model.decoder.output_projection.weight")
    missing, unknown = model.load_state_dict(
        {**named, "model.shared.weight": embedding, "lm_head.weight": embedding}, strict=False
    )
    assert not [name for name in (*missing, *unknown) if "embed_positions" not in name]
    return model


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("renamed", [dict, old_names])
def test_logits_are_those_of_the_same_model_in_transformers(
    tmp_path: Path, new: bool, renamed: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    shared = weights(len(TARGET) + 4, shared=True)
    directory = write(
        tmp_path / "m", renamed(shared), new=new, share_all_embeddings=True, dictionaries={"en": TARGET, "de": TARGET}
    )
    checkpoint = read_checkpoint(directory)
    source, target = [7, 4, 9, 5, 2], [5, 8, 12, 4, 2]
    ours = EagerModel(checkpoint.model, checkpoint.tokens).log_probs(source, target)
    with torch.inference_mode():
        inputs = {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([[2, *target[:-1]]])}
        theirs = in_transformers(shared)(**inputs).logits[0].log_softmax(-1).numpy()
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_file_and_directory_are_the_same_source(tmp_path: Path) -> None:
    directory = write(tmp_path / "model")
    whole, file = read_checkpoint(directory), read_checkpoint(directory / "checkpoints/checkpoint_best.pt")
    assert whole.config == file.config
    assert whole.card.name == file.card.name == "model"
    assert (whole.card.source_language, whole.card.target_language) == ("en", "de")
    assert (whole.generation.beam_size, whole.generation.length_penalty, whole.generation.max_length) == (3, 0.6, 30)


def tokenizer_of(checkpoint: Checkpoint, directory: Path) -> Tokenizer:
    return bundled_tokenizer(checkpoint, directory)


def test_codes_of_subword_nmt_are_applied(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(read_checkpoint(write(tmp_path / "model")), tmp_path / "bundle")
    assert tokenizer.encode("low lor </s>") == [6, 4, 8, 3, 3, 3, 3, 2]  # "lo@@ r", and "</s>" in pieces nobody knows
    assert tokenizer.decode([4, 5, 11, 2]) == "low hoch"


def test_without_marks_words_are_tokens(tmp_path: Path) -> None:
    words = {"en": [f"w{at}" for at in range(len(SOURCE))], "de": [f"v{at}" for at in range(len(TARGET))]}
    checkpoint = read_checkpoint(write(tmp_path / "model", dictionaries=words, codes=False))
    tokenizer = tokenizer_of(checkpoint, tmp_path / "bundle")
    assert tokenizer.encode("w1 w0 x") == [5, 4, 3, 2]
    assert tokenizer.decode([6, 4, 2]) == "v2 v0"


MOSES_SOURCE = ["it", "isn", "&apos;t", "well", "@-@", "known", "."]
MOSES_TARGET = [*MOSES_SOURCE, "bekannt", "&quot;"]
MOSES = {"dictionaries": {"en": MOSES_SOURCE, "de": MOSES_TARGET}, "codes": False}
SPACED = {"tokenizer": "moses", "moses_no_dash_splits": True, "moses_no_escape": False}


def test_moses_is_recognised_and_done_for_the_user(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(read_checkpoint(write(tmp_path / "model", **MOSES)), tmp_path / "bundle")
    assert tokenizer.encode("it isn't well-known.") == [4, 5, 6, 7, 8, 9, 10, 2]
    assert tokenizer.decode([12, 4, 11, 12, 10, 2]) == '"it bekannt".'


@pytest.mark.parametrize("new", [True, False])
def test_moses_follows_the_settings_of_the_checkpoint(tmp_path: Path, new: bool) -> None:
    directory = write(tmp_path / "model", **MOSES, **({} if new else SPACED), new=new)
    if new:
        path = directory / "checkpoints/checkpoint_best.pt"
        saved = torch.load(path, weights_only=False)
        saved["cfg"]["tokenizer"] = {"_name": "moses", "source_lang": "en", "target_lang": "de", **SPACED}
        torch.save(saved, path)
    tokenizer = tokenizer_of(read_checkpoint(directory), tmp_path / "bundle")
    assert tokenizer.encode("isn't well-known.") == [5, 6, 3, 10, 2]  # hyphens are kept


def test_moses_can_be_named_and_switched_off(tmp_path: Path) -> None:
    nameless = write(tmp_path / "model", **MOSES, source_lang=None, target_lang=None, data="")
    with pytest.raises(CheckpointError, match=r"--moses en-de.*--moses none"):
        read_checkpoint(nameless)
    for named, ids in (("en-de", [5, 6, 2]), ("none", [3, 2])):
        checkpoint = read_checkpoint(nameless, companions=CompanionFiles(moses=named))
        assert tokenizer_of(checkpoint, tmp_path / named).encode("isn't") == ids
    with pytest.raises(CheckpointError, match=r"--moses must be .* not 'english'"):
        read_checkpoint(nameless, companions=CompanionFiles(moses="english"))


def test_files_that_lie_elsewhere_are_named(tmp_path: Path) -> None:
    directory = write(tmp_path / "model", codes=False)
    (tmp_path / "elsewhere").mkdir()
    (directory / "data").rename(tmp_path / "elsewhere/data")
    codes = tmp_path / "elsewhere/merges"
    codes.write_text("#version: 0.2\nl o\n")
    with pytest.raises(CheckpointError, match=r"dict\.\*\.txt are missing; looked in .*--dictionaries"):
        read_checkpoint(directory)
    found = CompanionFiles(dictionaries=tmp_path / "elsewhere/data", bpe_codes=codes)
    assert read_checkpoint(directory, companions=found).config.source_vocabulary == len(SOURCE) + 4


def test_a_sentencepiece_model_for_pieces_of_subword_nmt_is_refused(tmp_path: Path) -> None:
    companions = CompanionFiles(sentencepiece=(tmp_path / "any.model",))
    with pytest.raises(CheckpointError, match=r"--spm does not fit.*@@"):
        _ = read_checkpoint(write(tmp_path / "model"), companions=companions).tokenizer_plan


def test_dictionaries_without_languages_are_told_apart_by_size(tmp_path: Path) -> None:
    named = {"x": TARGET, "y": SOURCE}
    checkpoint = read_checkpoint(write(tmp_path / "m", dictionaries=named, source_lang=None, target_lang=None, data=""))
    assert (checkpoint.card.source_language, checkpoint.card.target_language) == ("y", "x")


UNKNOWN_LANGUAGES = {"source_lang": None, "target_lang": None, "data": ""}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"codes": False}, "codes of subword-nmt .* missing; looked in .*data.*--bpe-codes"),
    ({"dictionaries": {"en": SOURCE[:-1], "de": TARGET}}, r"dict\.en\.txt has 10 tokens .* 11 rows"),
    ({"dictionaries": {"a": SOURCE, "b": SOURCE, "c": TARGET}, **UNKNOWN_LANGUAGES}, "can't be told"),
    ({"dictionaries": {"en": ["one", "two three four"], "de": TARGET}}, r"dict\.en\.txt has 6 tokens"),
    ({"arch": "lightconv_wmt_en_de", "new": False}, "'lightconv_wmt_en_de'"),
    ({"task": "multilingual_translation"}, "'multilingual_translation'"),
    ({"adaptive_softmax_cutoff": [1000]}, "adaptive_softmax_cutoff"),
    ({"decoder_embed_dim": 32}, "encoder_embed_dim=16 and decoder_embed_dim=32"),
    ({"activation_fn": "tanh"}, "'tanh'"),
    ({"tokenizer": "nltk", "new": False}, "'nltk'"),
    ({"encoder_layers": "2"}, "encoder_layers"),
    ({"encoder_layers": 3}, "missing: encoder.layers.2"),
    ({"encoder_attention_heads": 5}, "5 heads"),
    ({"max_source_positions": 1 << 40}, "max_source_positions"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(write(tmp_path / "model", **changes))


class Runs:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("new", [True, False])
def test_nothing_in_the_file_is_run(tmp_path: Path, new: bool) -> None:
    ran = tmp_path / "it ran"
    directory = write(tmp_path / "model", extra={"last_optimizer_state": Runs(ran)}, new=new)
    with pytest.raises(CheckpointError, match=r"mkdir.*nothing of it was run"):
        read_checkpoint(directory)
    assert not ran.exists()


class Node:
    """What the classes of omegaconf keep, without omegaconf."""

    def __init__(self, **state: object) -> None:
        self.__dict__.update(state)


def omegaconf_classes(monkeypatch: pytest.MonkeyPatch) -> tuple[type, type]:
    made = []
    monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
    for module, name in (("omegaconf.dictconfig", "DictConfig"), ("omegaconf.nodes", "AnyNode")):
        kind = type(name, (Node,), {"__module__": module})
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
        setattr(sys.modules[module], name, kind)
        made.append(kind)
    return made[0], made[1]


def test_omegaconf_is_not_needed_to_read_its_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container, node = omegaconf_classes(monkeypatch)
    plain = hydra(SETTINGS)
    model = {name: node(_val=value, _parent=None) for name, value in {**SETTINGS, "_name": "transformer"}.items()}
    cfg = container(_content={**plain, "model": container(_content=model, _metadata=None)})
    directory = write(tmp_path / "model", extra={"cfg": cfg})
    assert read_checkpoint(directory).config.encoder_layers == LAYERS


def test_settings_nested_without_end_are_refused(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    deep["again"] = deep
    directory = write(tmp_path / "model", extra={"cfg": {"model": deep}})
    with pytest.raises(CheckpointError, match="without end"):
        read_checkpoint(directory)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "model") / "checkpoints/checkpoint_best.pt"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(CheckpointError, match="truncated or corrupt"):
        read_checkpoint(path, format_name="fairseq")
