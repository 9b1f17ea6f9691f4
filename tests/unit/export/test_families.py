"""Every family gives token for token what Hugging Face `generate` gives: greedy and beam, alone and in a padded batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from same_answers import assert_same_searches, sources

from dragoman.bundle.tokenizer import open_tokenizer
from dragoman.errors import CheckpointError, UsageError
from dragoman.export.checkpoint import TokenLimits, read_checkpoint
from dragoman.export.verification.eager import EagerModel
from dragoman.export.verification.original import HuggingFaceModel
from random_families import FAMILIES, PIECES

ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in FAMILIES),
    ("NLLB", {**ONE_LAYER, "d_model": 30, "encoder_ffn_dim": 17}),
    ("NLLB", {"scale_embedding": False, "encoder_layers": 3}),
    ("M2M100", {"activation_function": "gelu", "decoder_attention_heads": 2}),
    ("BART", {**ONE_LAYER, "scale_embedding": True}),
    ("BART", {"activation_function": "relu", "decoder_layers": 3, "max_position_embeddings": 41}),
    ("mBART-50", {**ONE_LAYER, "scale_embedding": False}),
    ("Pegasus", {**ONE_LAYER, "scale_embedding": False}),
    ("T5", {"num_layers": 1, "num_decoder_layers": 1, "d_kv": 16}),
    ("T5", {"feed_forward_proj": "gated-silu", "num_heads": 5, "d_kv": 7}),
    ("T5", {"feed_forward_proj": "gelu", "tie_word_embeddings": False}),
    ("T5 1.1", {"num_layers": 3, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}),
    ("mT5", {"num_layers": 1, "num_decoder_layers": 1, "feed_forward_proj": "gated-relu"}),
    ("UMT5", {"num_layers": 3, "d_kv": 16}),
    *((name, {"tie_word_embeddings": False}) for name in ("M2M100", "BART", "mBART-50", "Pegasus")),
    ("M2M100", {"d_model": 25, "encoder_attention_heads": 5, "decoder_attention_heads": 1, "encoder_layers": 4}),
    ("BART", {"d_model": 26, "encoder_attention_heads": 2, "decoder_attention_heads": 13, "decoder_layers": 1}),
    ("T5", {"d_model": 23, "d_kv": 5, "num_heads": 1, "num_layers": 1, "num_decoder_layers": 4}),
    ("UMT5", {"num_layers": 1, "num_decoder_layers": 3}),
    ("T5", {"relative_attention_num_buckets": 5, "relative_attention_max_distance": 3}),
    ("T5", {"eos_token_id": [1, 130, 210]}),
    ("BART", {"eos_token_id": [2, 130, 210]}),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_translation_models_take_sentences_and_the_others_whole_texts(tmp_path: Path, family: str) -> None:
    expected = "none" if family in {"T5", "T5 1.1", "mT5", "UMT5", "ByT5", "BART", "Pegasus"} else "sentence"
    assert read_checkpoint(FAMILIES[family].write(tmp_path / "model")).segmentation == expected


@pytest.mark.parametrize(("family", "shape"), SHAPES, ids=str)
def test_answers_are_those_of_hugging_face(tmp_path: Path, family: str, shape: dict[str, Any]) -> None:
    directory = FAMILIES[family].write(tmp_path / "model", **shape)
    checkpoint = read_checkpoint(directory)
    original, ours = HuggingFaceModel(directory, checkpoint.tokens), EagerModel(checkpoint.model, checkpoint.tokens)
    expected = assert_same_searches(original, ours, checkpoint)
    for source, target in zip(sources(checkpoint), expected, strict=True):
        theirs = original.log_probs(source, target)
        np.testing.assert_allclose(ours.log_probs(source, target), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_reads_its_own_tokens_and_tokenizer(tmp_path: Path, family: str) -> None:
    checkpoint = read_checkpoint(FAMILIES[family].write(tmp_path / "model"))
    written = tmp_path / "tokenizer"
    written.mkdir()
    checkpoint.tokenizer_plan.write(written)
    tokenizer = open_tokenizer(written, checkpoint.tokenizer, checkpoint.tokens)
    assert tokenizer.encode("Where is it?")[-1] == checkpoint.tokens.eos
    assert sorted(path.name for path in written.iterdir()) == sorted(set(checkpoint.tokenizer.files.values()))


def test_languages_follow_the_pieces_in_the_order_of_the_family(tmp_path: Path) -> None:
    nllb = read_checkpoint(FAMILIES["NLLB"].write(tmp_path / "nllb")).languages
    assert nllb is not None
    assert (nllb.tokens["ace_Arab"], len(nllb.tokens), nllb.default_source) == (PIECES + 1, 202, "eng_Latn")
    assert (nllb.source_place, nllb.target_place) == ("before", "forced_bos")
    m2m100 = read_checkpoint(FAMILIES["M2M100"].write(tmp_path / "m2m100")).languages
    assert m2m100 is not None
    assert (m2m100.tokens["af"], m2m100.tokens["zu"]) == (400, 499)
    small = read_checkpoint(FAMILIES["SMALL-100"].write(tmp_path / "small")).languages
    assert small is not None
    assert (small.source_place, small.target_place) == ("none", "source_before")
    renamed = FAMILIES["M2M100"].write(tmp_path / "with the tokenizer's code")
    (renamed / "tokenization_small100.py").touch()
    assert read_checkpoint(renamed).languages == small
    madlad = read_checkpoint(FAMILIES["MADLAD"].write(tmp_path / "madlad"))
    assert madlad.languages is not None
    assert (madlad.languages.source_place, madlad.languages.target_place) == ("none", "source_before")
    assert set(madlad.languages.tokens) == {"en", "de", "pt", "zh_Latn"}
    assert (madlad.tokens.pad, madlad.tokens.eos, madlad.tokens.decoder_start) == (1, 2, 0)
    mbart = read_checkpoint(FAMILIES["mBART"].write(tmp_path / "mbart", decoder_start_token_id=PIECES + 3)).languages
    assert mbart is not None
    assert (mbart.source_place, mbart.target_place, len(mbart.tokens)) == ("after", "decoder_start", 25)


def test_a_model_without_a_position_limit_takes_the_requested_limits(tmp_path: Path) -> None:
    directory = FAMILIES["T5"].write(tmp_path / "model")
    assert read_checkpoint(directory).dimensions.max_source_tokens == 512
    sizes = read_checkpoint(directory, TokenLimits(2000, 300)).dimensions
    assert (sizes.max_source_tokens, sizes.max_target_tokens) == (2000, 300)


def test_a_model_with_a_position_limit_can_be_limited_further_but_not_extended(tmp_path: Path) -> None:
    directory = FAMILIES["BART"].write(tmp_path / "model")
    sizes = read_checkpoint(directory, TokenLimits(40, 30)).dimensions
    assert (sizes.max_source_tokens, sizes.max_target_tokens) == (40, 30)
    with pytest.raises(UsageError, match=r"--max-target-tokens 65 .* 64 positions"):
        read_checkpoint(directory, TokenLimits(40, 65))


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("NllbMoeForConditionalGeneration", "mixtures of experts .* nllb-200-3.3B"),
        ("LEDForConditionalGeneration", "windows"),
        ("LongT5ForConditionalGeneration", "windows"),
        ("BigBirdPegasusForConditionalGeneration", "block-sparse"),
        ("GPT2LMHeadModel", "supported are"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(tmp_path: Path, architecture: str, reason: str) -> None:
    directory = FAMILIES["ByT5"].write(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    with pytest.raises(CheckpointError, match=f"{architecture}.* {reason}"):
        read_checkpoint(directory)


@pytest.mark.parametrize(("buckets", "distance"), [(3, 100), (32, 16)])
def test_relative_positions_without_buckets_for_far_ones_are_refused(tmp_path: Path, buckets: int, distance: int) -> None:
    directory = FAMILIES["ByT5"].write(tmp_path / "model", relative_attention_num_buckets=buckets)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "relative_attention_max_distance": distance}))
    with pytest.raises(CheckpointError, match=f"relative_buckets={buckets} must be 4 or more"):
        read_checkpoint(directory)


def test_embeddings_that_are_equal_without_a_tie_are_stored_once(tmp_path: Path) -> None:
    """Only the output projection of such a model is its own."""
    directory = FAMILIES["BART"].write(tmp_path / "model", tie_word_embeddings=False)
    weights = load_file(directory / "model.safetensors")
    weights["model.decoder.embed_tokens.weight"] = weights["model.encoder.embed_tokens.weight"].clone()
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    config = read_checkpoint(directory).config
    assert (config.shared_embeddings, config.tied_output) == (True, False)


@pytest.mark.parametrize("projection", ["gated-mish", "gelu-gated", "gated-gelu-new", 5])
def test_an_unknown_feed_forward_is_refused(tmp_path: Path, projection: object) -> None:
    directory = FAMILIES["ByT5"].write(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "feed_forward_proj": projection}))
    with pytest.raises(CheckpointError, match="feed_forward_proj"):
        read_checkpoint(directory)


@pytest.mark.parametrize(
    "setting",
    [
        {"tie_encoder_decoder": True},
        {"pruned_heads": {"0": [1]}},
        {"quantization_config": {"bits": 4}},
        {"is_encoder_decoder": False},
    ],
    ids=str,
)
def test_a_variant_that_changes_the_mathematics_is_refused(tmp_path: Path, setting: dict[str, Any]) -> None:
    directory = FAMILIES["ByT5"].write(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **setting}))
    with pytest.raises(CheckpointError, match=next(iter(setting))):
        read_checkpoint(directory)


def test_a_bart_without_a_row_for_the_mask_is_read(tmp_path: Path) -> None:
    """bart-large-cnn's tokenizer has one token more than its embedding."""
    directory = FAMILIES["BART"].write(tmp_path / "model")
    vocabulary = json.loads((directory / "vocab.json").read_text())
    (directory / "vocab.json").write_text(json.dumps({**vocabulary, "<mask>": 384}))
    assert max(read_checkpoint(directory).tokenizer.silent) < 384
