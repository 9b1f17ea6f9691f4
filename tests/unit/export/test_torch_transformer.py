"""A described state dict of torch.nn.Transformer gives torch's own logits; the error for a wrong description names the
closest keys.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.verification.eager import EagerModel
from dragoman.export.verification.references import open_reference
from dragoman.export.verification.torch_transformer import TorchTransformerModel
from dragoman.search import DecodingOptions
from torch_files import DESCRIPTION, IDS, LENGTH, WIDTH, made, write

ONE_VOCABULARY: dict[str, Any] = {
    "target_embedding": "source.weight",
    "tokenizer": {"kind": "characters", "vocabulary": "source.json"},
    "ignored": ["target.weight"],
}
LEARNED = {"positions": {"weight": "places.weight", "offset": 2}}
VARIANTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"norm_first": True, "activation": "gelu"}, {"norm_first": True, "activation": "gelu"}),
    ({"bias": False, "learned": True, "norm_first": True}, {"norm_first": True, **LEARNED}),
    ({"shared": True, "output_bias": False}, {**ONE_VOCABULARY, "output": {"weight": "head.weight"}}),
    ({"layer_norm_eps": 1e-3}, {"layer_norm_epsilon": 1e-3}),
    ({}, {"positions": {"formula": "interleaved", "length": LENGTH}, "ignored": ["pe"]}),
]


@pytest.mark.parametrize(("settings", "changes"), VARIANTS)
def test_logits_are_torchs(tmp_path: Path, settings: dict[str, Any], changes: dict[str, Any]) -> None:
    model = made(**settings)
    checkpoint = read_checkpoint(write(tmp_path, model, **changes))
    target = [4, 6, 5, 9, 8, 2]
    with torch.inference_mode():
        theirs = model(torch.tensor([IDS]), torch.tensor([[1, *target[:-1]]]))[0].log_softmax(-1).numpy()
    ours = EagerModel(checkpoint.model, checkpoint.tokens).log_probs(IDS, target)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    np.testing.assert_allclose(open_reference(checkpoint).log_probs(IDS, target), theirs, atol=2e-5)


def test_our_module_generates_what_torchs_layers_generate(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path, made(norm_first=True), norm_first=True))
    sources = [IDS, [1, 8, 2], [1, *range(4, 12), *range(4, 12), 2]]
    for beams in (1, 3):
        options = DecodingOptions(beam_size=beams, max_length=20)
        ours = EagerModel(checkpoint.model, checkpoint.tokens).generate(sources, options)
        assert ours == TorchTransformerModel(checkpoint.source, checkpoint.tokens).generate(sources, options)


def test_the_file_itself_and_safetensors_are_sources_too(tmp_path: Path) -> None:
    directory = write(tmp_path, made())
    assert read_checkpoint(directory / "model.pt").config == read_checkpoint(directory).config
    (directory / "model.pt").unlink()
    safetensors.torch.save_file(made().state_dict(), directory / "model.safetensors")
    (directory / "dragoman.json").write_text(json.dumps({**DESCRIPTION, "weights": "model.safetensors"}))
    assert read_checkpoint(directory).config.encoder_layers == 2


def test_a_state_dict_inside_a_training_state_is_found(tmp_path: Path) -> None:
    directory = write(tmp_path, made(), state_dict="model_state_dict")
    torch.save({"model_state_dict": made().state_dict(), "epoch": 3}, directory / "model.pt")
    assert read_checkpoint(directory).config.d_model == WIDTH
    torch.save({"model_states": made().state_dict()}, directory / "model.pt")
    with pytest.raises(CheckpointError, match="closest is model_states"):
        read_checkpoint(directory)


def test_text_becomes_the_ids_that_the_model_was_trained_with(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "model", made()))
    (tmp_path / "bundle").mkdir()
    checkpoint.tokenizer_plan.write(tmp_path / "bundle")
    tokenizer = open_tokenizer(tmp_path / "bundle", checkpoint.tokenizer, checkpoint.tokens)
    assert tokenizer.encode("ad bx") == [1, 4, 7, 11, 5, 3, 2]
    assert tokenizer.decode([4, 14, 9, 2]) == "h m"


def section(name: str, **changes: Any) -> dict[str, Any]:
    return {name: {key: value for key, value in {**DESCRIPTION[name], **changes}.items() if value is not None}}


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"source_embedding": "sources.weight"},
        r"(?s)missing: sources.weight \(source_embedding\); the closest is source.weight",
    ),
    ({"source_embedding": "sources.weight"}, r"not matched: source.weight \[12, 16\]"),
    (
        {"prefix": "nett"},
        r"missing: nett.encoder.layers.0.linear1.weight .* the closest .* net.encoder.layers.0.linear1.weight",
    ),
    ({"positions": {"formula": "interleaved"}}, r"not matched: pe \[24, 1, 16\]"),
    ({"positions": {"weight": "head.bias"}}, "is not a table of positions"),
    ({"positions": {"weight": "pe", "offset": 24}}, "24 or more"),
    ({"positions": {"weight": "pe", "offset": -1}}, "offset"),
    ({"heads": 3}, "3 heads"),
    ({"heads": None}, "heads"),
    ({"activation": "tanh"}, "'tanh'"),
    ({"layer_norm_epsilon": -1.0}, "norm_epsilon=-1.0"),
    ({"norm_frist": True}, "norm_frist.* the closest .*norm_first"),
    ({"format": "torch"}, "hugging-face"),
    ({"weights": "../model.pt"}, "must be a path below"),
    ({"weights": "other.pt"}, "other.pt"),
    (section("tokenizer", kind="character"), "characters"),
    (section("tokenizer", vocabulary=None), "vocabulary"),
    (section("tokenizer", vocabulary="missing.json"), "missing.json"),
    (section("tokenizer", vocabulary="target.json"), "vocabulary and embedding disagree: target.json has ids up to 14"),
    (section("tokenizer", kind="subword-nmt"), "codes"),
    (section("tokens", start="<bos>"), "'start' in|start in"),
    (section("tokens", unknown="<ukn>"), "closest .*<unk>"),
    (section("tokens", end=None), "'end'"),
    ({"generation": {"beams": 4}}, "beams"),
    ({"generation": {"max_length": 1000}}, "24 positions"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_wrong_description_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(write(tmp_path, made(), **changes))


def test_a_misshaped_weight_is_named(tmp_path: Path) -> None:
    directory, state = write(tmp_path, made()), made().state_dict()
    state["net.decoder.layers.0.linear2.weight"] = torch.zeros(3, 3)
    torch.save(state, directory / "model.pt")
    with pytest.raises(CheckpointError, match=r"net.decoder.layers.0.linear2.weight is \[3, 3\]"):
        read_checkpoint(directory)


class Runs:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.marker),)


def truncated(path: Path, _ran: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def not_a_pickle(path: Path, _ran: Path) -> None:
    path.write_bytes(b"GIF89a" + bytes(1000))


def malicious(path: Path, ran: Path) -> None:
    torch.save({**made().state_dict(), "x": Runs(ran)}, path)


def malicious_and_old(path: Path, ran: Path) -> None:
    torch.save({**made().state_dict(), "x": Runs(ran)}, path, _use_new_zipfile_serialization=False)


def compressed(path: Path, _ran: Path) -> None:
    with zipfile.ZipFile(path) as stored:
        records = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in records.items():
            packed.writestr(name, content)


def a_list(path: Path, _ran: Path) -> None:
    torch.save([1, 2, 3], path)


def larger_than_its_memory(path: Path, _ran: Path) -> None:
    state = made().state_dict()
    torch.save({**state, "source.weight": torch.zeros(1).expand(1 << 20, 1 << 14)}, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "truncated or corrupt"),
        (not_a_pickle, "corrupt"),
        (malicious, "mkdir.*nothing of it was run"),
        (malicious_and_old, "mkdir.*nothing of it was run"),
        (compressed, "compressed"),
        (a_list, "not a state dict"),
        (larger_than_its_memory, "not an ordinary tensor"),
    ],
)
def test_a_damaged_or_hostile_file_is_refused(tmp_path: Path, damage: Callable[[Path, Path], None], message: str) -> None:
    directory, ran = write(tmp_path, made()), tmp_path / "it ran"
    damage(directory / "model.pt", ran)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(directory)
    assert not ran.exists()
