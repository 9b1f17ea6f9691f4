"""The form that is trained computes what the form that is exported computes; our own format loses nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import reversing
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.training import TrainingForm, label_smoothed_loss, warm_up
from dragoman.export.verification.corpus import read_corpus
from dragoman.export.verification.eager import EagerModel
from dragoman.search import DecodingOptions

ROOT = Path(__file__).resolve().parents[3]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"pre_norm": True, "final_norm": True, "positions": "learned", "activation": "gelu"},
    {"shared_embeddings": False, "tied_output": False, "output_bias": True, "embedding_norm": True},
    {
        "positions": "relative",
        "norm": "rms",
        "pre_norm": True,
        "final_norm": True,
        "gated": True,
        "attention_bias": False,
        "feed_forward_bias": False,
        "relative_per_layer": True,
        "decoder_layers": 2,
    },
]


def random_form(**changes: Any) -> TrainingForm:
    torch.manual_seed(5)
    form = TrainingForm(dataclasses.replace(reversing.config(), **changes), dropout=0.3)
    with torch.no_grad():
        for parameter in form.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.05)
    return form.eval()


@pytest.mark.parametrize("changes", VARIANTS)
def test_whole_targets_give_the_logits_of_single_steps(changes: dict[str, Any]) -> None:
    form = random_form(**changes)
    source, lengths, target = reversing.examples(3, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = form(source, lengths, reversing.read_from_start(target)).log_softmax(-1)
    tokens = reversing_tokens()
    for row, length in enumerate(lengths.tolist()):
        said = target[row, :length].tolist()
        steps = EagerModel(form.model, tokens).log_probs(source[row, :length].tolist(), said)
        torch.testing.assert_close(whole[row, :length], torch.from_numpy(steps), atol=2e-5, rtol=0)


def reversing_tokens() -> Any:
    from dragoman.bundle.manifest import SpecialTokens

    return SpecialTokens(pad=reversing.PAD, eos=reversing.END, decoder_start=reversing.START, unknown=reversing.UNKNOWN)


def test_dropout_is_for_training_only() -> None:
    form, (source, lengths, target) = random_form(), reversing.examples(2, torch.Generator().manual_seed(2))
    assert torch.equal(form(source, lengths, target), form(source, lengths, target))
    form.train()
    assert not torch.equal(form(source, lengths, target), form(source, lengths, target))


def test_padding_does_not_affect_training() -> None:
    form = random_form()
    source, lengths, target = reversing.examples(4, torch.Generator().manual_seed(4))
    logits = form(source, lengths, reversing.read_from_start(target))
    changed = torch.where((target == reversing.PAD)[..., None], torch.randn_like(logits), logits)
    assert torch.equal(label_smoothed_loss(logits, target, 0), label_smoothed_loss(changed, target, 0))


def test_the_learning_rate_is_highest_after_the_warm_up() -> None:
    rates = [warm_up(step, 512, 400) for step in range(1, 2000)]
    assert rates.index(max(rates)) == 399
    assert max(rates) == pytest.approx(512**-0.5 * 400**-0.5)


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_own_format_loses_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    form = random_form(**changes)
    read = read_checkpoint(reversing.save(tmp_path / "model", form))
    assert read.config == form.model.config
    ours, theirs = form.model.state_dict(), read.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def described(directory: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    description = json.loads((directory / "dragoman.json").read_text())
    change(description)
    (directory / "dragoman.json").write_text(json.dumps(description))
    return directory


WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda raw: raw.update(version=2), "version 2"),
    (lambda raw: raw.update(verison=1), "'verison', which means nothing; the closest .*version"),
    (lambda raw: raw["config"].pop("d_model"), "lacks d_model"),
    (lambda raw: raw["config"].update(heads=2), "unknown fields 'heads'"),
    (lambda raw: raw["config"].update(d_model="32"), "d_model"),
    (lambda raw: raw["config"].update(encoder_heads=5), "5 heads"),
    (lambda raw: raw["config"].update(encoder_layers=2), "missing: encoder.layers.1"),
    (lambda raw: raw["config"].update(d_model=1 << 40), "d_model"),
    (lambda raw: raw["tokenizer"].update(vocabulary="/etc/passwd"), "must be a path below"),
    (lambda raw: raw["tokens"].update(end=77), "77"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_description_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    directory = reversing.save(tmp_path / "model", random_form())
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(described(directory, change))


def test_missing_and_truncated_weights_are_named(tmp_path: Path) -> None:
    directory = reversing.save(tmp_path / "model", random_form())
    os.truncate(directory / "model.safetensors", 500)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated or corrupt"):
        read_checkpoint(directory)
    (directory / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors .*is missing"):
        read_checkpoint(directory)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """examples/train.py and a command line for it that takes no time."""
    words = ["one two", "three four", "five six", "seven eight", "nine ten"]
    text = tmp_path / "text.tsv"
    text.write_text("".join(f"{a} {b}\t{b} {a}\n" for a in words for b in words for _ in range(4)))
    flags = ["--text", str(text), "--output", str(tmp_path / "model"), "--steps", "6", "--vocabulary", "60", "--width", "16"]
    monkeypatch.setattr(sys, "argv", ["train.py", *flags, "--layers", "1", "--heads", "2", "--target-language", "de"])
    spec = importlib.util.spec_from_file_location("train_example", ROOT / "examples/train.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train_example", loaded)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_example_trains_a_model_that_can_be_read(
    tmp_path: Path, example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main()
    told = capsys.readouterr().out
    assert "98 pairs to learn from, 2 held out" in told
    assert "6 steps; the sentences that were held out have the perplexity" in told
    held_out = read_corpus(tmp_path / "model/held-out.tsv")
    assert (len(held_out.sentences), held_out.has_references) == (2, True)
    checkpoint = read_checkpoint(tmp_path / "model")
    assert checkpoint.card.target_language == "de"
    assert checkpoint.generation.beam_size == 4
    model = EagerModel(checkpoint.model, checkpoint.tokens)
    assert model.generate([[5, 6, 2]], DecodingOptions(max_length=5))


def test_ctrl_c_ends_the_training_and_saves_what_was_learned(
    tmp_path: Path, example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupting(step: int, *settings: int) -> float:
        if step == 3:
            signal.raise_signal(signal.SIGINT)
        return warm_up(step, *settings)

    monkeypatch.setattr(example, "warm_up", interrupting)
    example.main()
    assert "3 steps; the sentences that were held out" in capsys.readouterr().out
    assert read_checkpoint(tmp_path / "model").model.config.d_model == 16


def test_all_weights_learn() -> None:
    assert all(parameter.requires_grad for parameter in TrainingForm(reversing.config()).parameters())
