from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from dragoman.bundle.manifest import SpecialTokens, Task
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import Checkpoint, read_checkpoint
from dragoman.export.checkpoint.generation import generation_options
from dragoman.export.transformer import Transformer
from dragoman.export.transformer.positions import sinusoids
from dragoman.search.options import DecodingOptions
from random_marian import REFERENCE_MODEL, marian_config, marian_weights, write_marian

TOKENS = SpecialTokens(pad=52, eos=0, decoder_start=52)


def assert_same_weights(one: Checkpoint, other: Checkpoint) -> None:
    theirs = other.model.state_dict()
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name


def test_the_reference_model_is_read_as_its_files_describe_it() -> None:
    checkpoint = read_checkpoint(REFERENCE_MODEL)
    assert checkpoint.card.architecture == "MarianMTModel"
    assert checkpoint.card.name == "tatoeba-en-de"
    assert (checkpoint.card.source_language, checkpoint.card.target_language) == ("en", "de")
    assert checkpoint.tokens == SpecialTokens(pad=8000, eos=0, decoder_start=8000, unknown=1)
    assert checkpoint.generation == DecodingOptions(beam_size=4, max_length=127, bad_words=((8000,),), forced_eos=0)
    assert checkpoint.dimensions.head_dim == 32
    assert sorted(checkpoint.tokenizer_plan.copied) == ["source.spm", "target.spm", "vocab.json"]
    assert all(path.is_file() for path in checkpoint.tokenizer_plan.copied.values())


def test_queries_keys_and_values_are_fused_in_that_order_and_transposed(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_marian(tmp_path / "model"))
    weights = marian_weights(marian_config())
    parts = [weights[f"model.encoder.layers.0.self_attn.{part}_proj.weight"] for part in "qkv"]
    fused = checkpoint.model.get_parameter("encoder.layers.0.self_attention.qkv.weight")
    assert torch.equal(fused, torch.cat(parts).t())


def test_a_pickled_checkpoint_is_read_like_a_safetensors_one(tmp_path: Path) -> None:
    safe, pickled = write_marian(tmp_path / "safe"), write_marian(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save(marian_weights(marian_config()), pickled / "pytorch_model.bin")
    assert_same_weights(read_checkpoint(safe), read_checkpoint(pickled))


def test_the_old_pickle_format_without_a_zip_is_read_too(tmp_path: Path) -> None:
    safe, pickled = write_marian(tmp_path / "safe"), write_marian(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save(marian_weights(marian_config()), pickled / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert_same_weights(read_checkpoint(safe), read_checkpoint(pickled))


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    whole, sharded = write_marian(tmp_path / "whole"), write_marian(tmp_path / "sharded")
    (sharded / "model.safetensors").unlink()
    weights = marian_weights(marian_config())
    for name in weights:
        save_file({name: weights[name]}, sharded / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in weights}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same_weights(read_checkpoint(whole), read_checkpoint(sharded))


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    halves = {name: tensor.half() for name, tensor in marian_weights(marian_config()).items()}
    checkpoint = read_checkpoint(write_marian(tmp_path / "model", weights=halves))
    assert all(parameter.dtype == torch.float32 for parameter in checkpoint.model.parameters())
    shared = checkpoint.model.source_embedding.weight
    assert torch.equal(shared, halves["model.shared.weight"].float())


@pytest.mark.parametrize(
    "name", ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"]
)
def test_a_shared_embedding_is_found_under_any_of_its_names(tmp_path: Path, name: str) -> None:
    weights = marian_weights(marian_config())
    weights[name] = weights.pop("model.shared.weight")
    checkpoint = read_checkpoint(write_marian(tmp_path / "model", weights=weights))
    assert torch.equal(checkpoint.model.source_embedding.weight, weights[name])


def test_copies_of_the_shared_embedding_and_stored_sinusoids_are_not_unused(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights["model.shared.weight"].clone()
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_positions.weight"] = sinusoids(32, 16).half()
    checkpoint = read_checkpoint(write_marian(tmp_path / "model", weights=weights))
    assert_one_embedding(checkpoint.model)


def assert_one_embedding(model: Transformer) -> None:
    assert model.source_embedding.weight is model.target_embedding.weight
    assert model.output.weight is model.target_embedding.weight


def test_unshared_embeddings_and_an_untied_projection_are_three_weights(tmp_path: Path) -> None:
    directory = write_marian(
        tmp_path / "model", share_encoder_decoder_embeddings=False, decoder_vocab_size=61, tie_word_embeddings=False
    )
    model = read_checkpoint(directory).model
    weights = marian_weights(
        marian_config(share_encoder_decoder_embeddings=False, decoder_vocab_size=61, tie_word_embeddings=False)
    )
    expected: list[tuple[Tensor, str]] = [
        (model.source_embedding.weight, "model.encoder.embed_tokens.weight"),
        (model.target_embedding.weight, "model.decoder.embed_tokens.weight"),
        (model.output.weight, "lm_head.weight"),
    ]
    for ours, name in expected:
        assert torch.equal(ours, weights[name])


def test_separate_vocabularies_are_both_copied(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "model", share_encoder_decoder_embeddings=False, decoder_vocab_size=61)
    checkpoint = read_checkpoint(directory)
    assert checkpoint.tokenizer.files["target_vocabulary"] == "target_vocab.json"
    assert "target_vocab.json" in checkpoint.tokenizer_plan.copied
    assert (checkpoint.dimensions.source_vocabulary, checkpoint.dimensions.target_vocabulary) == (53, 61)


def test_a_target_vocabulary_that_the_tokenizer_does_not_use_is_left_behind(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "model", share_encoder_decoder_embeddings=False)
    (directory / "tokenizer_config.json").write_text('{"separate_vocabs": false}')
    assert "target_vocab.json" not in read_checkpoint(directory).tokenizer_plan.copied


def test_a_missing_logits_bias_is_zero(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    del weights["final_logits_bias"]
    checkpoint = read_checkpoint(write_marian(tmp_path / "model", weights=weights))
    assert torch.equal(checkpoint.model.output.bias, torch.zeros(53))


def test_generation_settings_of_old_checkpoints_come_from_config_json(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "model", num_beams=6, max_length=20, bad_words_ids=[[52]])
    assert read_checkpoint(directory).generation == DecodingOptions(beam_size=6, max_length=19, bad_words=((52,),))


def test_generation_config_json_comes_before_config_json(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "model", num_beams=6)
    (directory / "generation_config.json").write_text('{"num_beams": 3}')
    assert read_checkpoint(directory).generation.beam_size == 3


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param({}, DecodingOptions(max_length=32), id="nothing said: as long as the positions go"),
        pytest.param({"max_length": 10}, DecodingOptions(max_length=9), id="the start token does not count"),
        pytest.param({"max_length": 20, "max_new_tokens": 10}, DecodingOptions(max_length=10), id="new tokens first"),
        pytest.param({"max_length": 1000}, DecodingOptions(max_length=32), id="never beyond the positions"),
        pytest.param({"min_length": 5}, DecodingOptions(max_length=32, min_length=4), id="the start token is counted"),
        pytest.param({"min_new_tokens": 5}, DecodingOptions(max_length=32, min_length=5), id="min_new_tokens"),
        pytest.param({"min_new_tokens": 5, "min_length": 9}, DecodingOptions(max_length=32, min_length=5), id="new first"),
        pytest.param({"suppress_tokens": [5, 7]}, DecodingOptions(max_length=32, bad_words=((5,), (7,))), id="suppressed"),
        pytest.param({"min_length": 50, "max_length": 10}, DecodingOptions(max_length=9, min_length=9), id="both"),
        pytest.param({"early_stopping": False}, DecodingOptions(max_length=32), id="heuristic"),
        pytest.param({"early_stopping": True}, DecodingOptions(max_length=32, early_stopping="first"), id="first"),
        pytest.param({"early_stopping": "never"}, DecodingOptions(max_length=32, early_stopping="never"), id="never"),
        pytest.param(
            {"length_penalty": 0.6, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2},
            DecodingOptions(max_length=32, length_penalty=0.6, no_repeat_ngram_size=3, repetition_penalty=1.2),
            id="penalties",
        ),
        pytest.param(
            {"bad_words_ids": [[52], [0], [3, 4]]},
            DecodingOptions(max_length=32, bad_words=((52,), (3, 4))),
            id="the end token can't be a bad word",
        ),
        pytest.param(
            {"forced_eos_token_id": [0], "forced_bos_token_id": 7},
            DecodingOptions(max_length=32, forced_eos=0, forced_bos=7),
            id="forced tokens, also in a list of one",
        ),
        pytest.param(
            {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9},
            DecodingOptions(max_length=32, sampling=True, temperature=0.7, top_k=5, top_p=0.9),
            id="sampling",
        ),
        pytest.param({"num_beams": None, "length_penalty": None}, DecodingOptions(max_length=32), id="null is unsaid"),
    ],
)
def test_generation_settings_mean_what_they_mean_to_hugging_face(raw: dict[str, object], expected: DecodingOptions) -> None:
    assert generation_options(raw, TOKENS, max_positions=32) == expected


@pytest.mark.parametrize(
    "setting",
    [
        {"num_beams": 4, "do_sample": True},
        {"encoder_no_repeat_ngram_size": 3},
        {"num_beam_groups": 2},
        {"diversity_penalty": 0.5},
        {"suppress_tokens": [0]},
        {"suppress_tokens": [7], "forced_bos_token_id": 7},
        {"suppress_tokens": 5},
        {"begin_suppress_tokens": [5]},
        {"min_new_tokens": -5},
        {"min_length": "long"},
        {"remove_invalid_values": True},
        {"num_return_sequences": 2},
        {"exponential_decay_length_penalty": [5, 1.1]},
        {"renormalize_logits": True},
        {"early_stopping": 1},
        {"forced_bos_token_id": [3, 4]},
        {"do_sample": "yes"},
        {"bad_words_ids": 5},
        {"do_sample": True, "typical_p": 0.5},
    ],
    ids=str,
)
def test_a_setting_that_is_not_supported_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        generation_options(setting, TOKENS, max_positions=32)


def test_settings_without_effect_are_accepted() -> None:
    neutral: dict[str, object] = {
        "encoder_no_repeat_ngram_size": 0,
        "num_beam_groups": 1,
        "diversity_penalty": 0.0,
        "suppress_tokens": None,
        "min_new_tokens": 0,
        "renormalize_logits": False,
        "typical_p": 0.5,  # of sampling, which is off
    }
    assert generation_options(neutral, TOKENS, max_positions=32) == DecodingOptions(max_length=32)


def test_tasks_of_the_configuration_are_settings_over_the_models_own(tmp_path: Path) -> None:
    tasks = {
        "summarization": {"num_beams": 3, "min_length": 5, "max_length": 20, "prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: "},
    }
    directory = write_marian(tmp_path / "model", num_beams=6, max_length=11, task_specific_params=tasks)
    checkpoint = read_checkpoint(directory)
    assert checkpoint.generation == DecodingOptions(beam_size=6, max_length=10)
    assert checkpoint.tasks == {
        "summarization": Task("summarize: ", DecodingOptions(beam_size=3, min_length=4, max_length=19)),
        "translation_en_to_de": Task("translate English to German: ", checkpoint.generation),
    }


@pytest.mark.parametrize("tasks", [5, {"a": 5}, {"a": {"prefix": 5}}, {"": {}}, {"a": {"num_beam_groups": 2}}], ids=str)
def test_impossible_tasks_are_refused(tmp_path: Path, tasks: object) -> None:
    directory = write_marian(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "task_specific_params": tasks}))
    with pytest.raises(CheckpointError, match="task_specific_params"):
        read_checkpoint(directory)
