"""The generation settings of a checkpoint give what Hugging Face `generate` gives with them, or they are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tiny_marian import EOS, PAD, searched, tiny_model
from transformers import GenerationConfig

from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.generation import NEUTRAL, end_tokens, generation_options
from dragoman.export.checkpoint.settings import JsonSettings

SOURCES = [[5, 9, 3, EOS], [11, 12, 13, 14, 30, 2, EOS], [7, EOS], [33, 1, 20, EOS]]

HONOURED: list[dict[str, Any]] = [
    {},
    {"num_beams": 4},
    {"num_beams": 4, "num_return_sequences": 1},
    {"num_beams": 3, "length_penalty": 2.0},
    {"num_beams": 3, "length_penalty": -0.5},
    {"num_beams": 4, "early_stopping": True},
    {"num_beams": 4, "early_stopping": False},
    {"num_beams": 4, "early_stopping": "never"},
    {"max_length": 5},
    {"num_beams": 3, "max_new_tokens": 5, "max_length": 9},
    {"min_length": 9},
    {"num_beams": 3, "min_length": 9},
    {"min_length": 1},
    {"min_new_tokens": 9},
    {"num_beams": 3, "min_new_tokens": 3, "min_length": 12},
    {"no_repeat_ngram_size": 2, "min_length": 12},
    {"num_beams": 3, "no_repeat_ngram_size": 3, "min_length": 12},
    {"repetition_penalty": 1.5, "min_length": 9},
    {"num_beams": 2, "bad_words_ids": [[PAD], [4], [9, 3], [EOS]]},
    {"suppress_tokens": [3, 9, 21], "min_length": 6},
    {"num_beams": 3, "suppress_tokens": [3, 9, 21], "bad_words_ids": [[4, 4]], "min_length": 6},
    {"forced_bos_token_id": 8},
    {"num_beams": 3, "forced_bos_token_id": 8, "forced_eos_token_id": EOS, "max_length": 6, "min_length": 6},
    {"eos_token_id": [EOS, 9, 17]},
    {"num_beams": 4, "eos_token_id": [9, EOS, 17, 9], "min_length": 4},
    {"num_beams": 4, "eos_token_id": [9, 17], "early_stopping": True, "forced_eos_token_id": 17, "max_length": 7},
    {"num_beams": 2, "decoder_start_token_id": 7, "max_length": 8},
]
"""What changes the answers and is honoured."""

WITHOUT_EFFECT = {
    *("bos_token_id", "pad_token_id"),  # tokens around sources, and of padding
    *("do_sample", "temperature", "top_k", "top_p"),  # sampling draws from a custom generator
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "low_memory"),
    *("compile_config", "disable_compile", "continuous_batching_config"),
    *("output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate"),
    *("assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind"),
    *("is_assistant", "max_matching_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule"),
    *("target_lookbehind", "speculation_type", "use_mtp"),  # speculative decoding gives the same tokens
    *("transformers_version", "_from_model_config"),
}
"""How `generate` computes and what else it returns."""


@pytest.mark.parametrize("raw", HONOURED, ids=str)
def test_a_setting_gives_what_it_gives_in_hugging_face(raw: dict[str, Any]) -> None:
    raw = {"max_length": 21, **raw}
    ends = end_tokens(JsonSettings(raw, "settings"), JsonSettings({"eos_token_id": EOS}, "config"))
    start = raw.get("decoder_start_token_id", PAD)
    options = generation_options(raw, SpecialTokens(pad=PAD, eos=ends[0], decoder_start=start, other_eos=ends[1:]), 64)
    options = dataclasses.replace(options, decoder_start=start)
    asked = GenerationConfig(**{"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": PAD, **raw})
    for source, ours in zip(SOURCES, searched(SOURCES, [options] * len(SOURCES), ends=ends), strict=True):
        ids = torch.tensor([source])
        theirs = tiny_model().generate(ids, attention_mask=torch.ones_like(ids), generation_config=asked)[0].tolist()
        assert list(ours[0].tokens) == theirs[1:]


def test_every_setting_that_transformers_has_is_honoured_refused_or_without_effect() -> None:
    theirs = set(vars(GenerationConfig()))
    honoured = {name for raw in HONOURED for name in raw}
    assert theirs - honoured - set(NEUTRAL) - WITHOUT_EFFECT == set()


@pytest.mark.parametrize("name", NEUTRAL)
def test_an_unsupported_setting_is_refused_unless_it_has_no_effect(name: str) -> None:
    tokens = SpecialTokens(pad=PAD, eos=EOS, decoder_start=PAD)
    plain = generation_options({"do_sample": True}, tokens, 64)
    for neutral in (None, *NEUTRAL[name]):
        assert generation_options({"do_sample": True, name: neutral}, tokens, 64) == plain
    with pytest.raises(CheckpointError, match=f"{name}=.* not supported"):
        generation_options({"do_sample": True, name: 7}, tokens, 64)
