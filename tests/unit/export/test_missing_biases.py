"""Checkpoints that lack biases: exact where the original computes without them, refused where a file has lost one.

Hugging Face makes up what a file lacks (zeros, and a warning), so that a damaged checkpoint translates, and badly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refused_checkpoints import refusal
from safetensors.torch import load_file, save_file
from same_answers import assert_same_searches, sources

from ctranslate2_models import write_ctranslate2
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.verification.ctranslate2_model import CTranslate2Original
from dragoman.export.verification.eager import EagerModel
from dragoman.export.verification.original import HuggingFaceModel
from random_families import FAMILIES
from random_marian import write_marian

ONE_LAYER: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1}
ODD: dict[str, dict[str, Any]] = {
    "Marian": {**ONE_LAYER, "vocab_size": 253},
    "BART": {**ONE_LAYER, "d_model": 27, "encoder_ffn_dim": 17},
    "mBART-50": {**ONE_LAYER, "tie_word_embeddings": False},
    "NLLB": {**ONE_LAYER, "d_model": 27, "decoder_ffn_dim": 19},
    "Pegasus": {**ONE_LAYER, "scale_embedding": False},
    "T5": {"num_layers": 1, "num_decoder_layers": 1, "d_kv": 7},
}
LOST = (
    "model.encoder.layers.0.self_attn.k_proj.bias",
    "model.encoder.layers.0.fc1.bias",
    "model.decoder.layers.0.encoder_attn.out_proj.bias",
    "model.decoder.layers.0.final_layer_norm.bias",
)


def write(directory: Path, family: str) -> Path:
    return (
        write_marian(directory, **ODD["Marian"]) if family == "Marian" else FAMILIES[family].write(directory, **ODD[family])
    )


def without(directory: Path, *names: str) -> Path:
    """The checkpoint in `directory`, of whose weights these are taken away."""
    weights = load_file(directory / "model.safetensors")
    for name in names:
        del weights[name]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory


@pytest.mark.parametrize("family", ["Marian", "BART", "mBART-50", "Pegasus"])
def test_without_a_bias_of_the_logits_answers_are_those_of_hugging_face(tmp_path: Path, family: str) -> None:
    directory = write(tmp_path / "model", family)
    biased = read_checkpoint(directory).model.output.bias
    assert biased.abs().max() > 0.1
    checkpoint = read_checkpoint(without(directory, "final_logits_bias"))
    original, ours = HuggingFaceModel(directory, checkpoint.tokens), EagerModel(checkpoint.model, checkpoint.tokens)
    expected = assert_same_searches(original, ours, checkpoint)
    for source, target in zip(sources(checkpoint), expected, strict=True):
        theirs = original.log_probs(source, target)
        np.testing.assert_allclose(ours.log_probs(source, target), theirs, rtol=1e-4, atol=1e-4)


def test_layers_without_biases_beside_others_that_have_them_give_the_answers_of_ctranslate2(tmp_path: Path) -> None:
    """Its converter leaves a bias out where the layer has none, and joins those of query, key and value."""
    unbiased = (
        "model.encoder.layers.0.fc1",
        "model.encoder.layers.0.self_attn.out_proj",
        "model.encoder.layers.1.self_attn.k_proj",
        *(f"model.decoder.layers.0.self_attn.{part}_proj" for part in "qkv"),
        "model.decoder.layers.0.encoder_attn.q_proj",
        "model.decoder.layers.1.fc2",
    )
    directory = write_ctranslate2(tmp_path / "model", "NLLB", unbiased=unbiased)
    checkpoint = read_checkpoint(directory)
    assert not checkpoint.model.encoder.layers[0].feed_forward.inner.bias.any()
    theirs = CTranslate2Original(directory, checkpoint.config, checkpoint.tokens)
    ours = EagerModel(checkpoint.model, checkpoint.tokens)
    expected = assert_same_searches(theirs, ours, checkpoint)
    for source, target in zip(sources(checkpoint), expected, strict=True):
        masked, found = theirs.log_probs(source, target), ours.log_probs(source, target)
        np.testing.assert_allclose(found[np.isfinite(masked)], masked[np.isfinite(masked)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", [family for family in ODD if family != "T5"])
def test_a_layer_that_has_lost_a_bias_is_refused_by_name(tmp_path: Path, family: str) -> None:
    message = refusal(without(write(tmp_path / "model", family), *LOST))
    assert message.startswith(f"{len(LOST)} weights do not fit")
    for name in LOST:
        assert f"missing: {name} [" in message


def test_a_bias_that_the_family_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    """A T5 has none, whatever its file says: Hugging Face would compute without it."""
    directory = write(tmp_path / "model", "T5")
    weights = load_file(directory / "model.safetensors")
    name = "encoder.block.0.layer.0.SelfAttention.q.bias"
    save_file({**weights, name: torch.ones(21)}, directory / "model.safetensors", {"format": "pt"})
    assert f"unused: {name} [21]" in refusal(directory)
