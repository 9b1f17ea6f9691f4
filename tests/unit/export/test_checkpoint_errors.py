from __future__ import annotations

import json
import resource
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused_checkpoints import refusal, rewrite_json

from dragoman.errors import CheckpointError, ExportError
from dragoman.export.checkpoint import read_checkpoint
from random_marian import marian_config, vocabulary, write_marian


def test_a_path_that_does_not_exist_is_not_a_checkpoint(tmp_path: Path) -> None:
    assert "no such directory" in refusal(tmp_path / "nowhere")


def test_a_directory_without_a_configuration_is_not_a_checkpoint(tmp_path: Path) -> None:
    assert "config.json" in refusal(tmp_path)


def test_a_configuration_that_is_not_json_is_refused(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("{")
    assert "not readable JSON" in refusal(checkpoint)


def test_the_error_for_an_unsupported_architecture_lists_those_supported(checkpoint: Path) -> None:
    rewrite_json(checkpoint / "config.json", lambda c: c.update(architectures=["LlamaForCausalLM"]))
    message = refusal(checkpoint)
    assert "LlamaForCausalLM" in message
    assert "MarianMTModel" in message


def test_a_setting_of_the_wrong_type_is_named_with_its_value(checkpoint: Path) -> None:
    rewrite_json(checkpoint / "config.json", lambda c: c.update(d_model="wide"))
    message = refusal(checkpoint)
    assert "d_model" in message
    assert "'wide'" in message


HUGE = [-1, 0, 10**9, 2**62, 10**60, True, 1.5, [[[1]]], {"a": 1}, "8"]


@pytest.mark.parametrize("value", HUGE, ids=str)
@pytest.mark.parametrize("name", ["d_model", "encoder_layers", "decoder_ffn_dim", "vocab_size", "max_position_embeddings"])
def test_an_impossible_size_is_refused_before_memory_is_allocated(checkpoint: Path, name: str, value: object) -> None:
    rewrite_json(checkpoint / "config.json", lambda c: c.update({name: value}))
    tracemalloc.start()
    message = refusal(checkpoint)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in message
    assert peak < 50e6


def test_a_configuration_larger_than_its_weights_is_refused_before_memory_is_allocated(checkpoint: Path) -> None:
    sizes = {"d_model": 32768, "encoder_ffn_dim": 1 << 20, "decoder_ffn_dim": 1 << 20}
    rewrite_json(checkpoint / "config.json", lambda c: c.update(sizes))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "misshaped" in refusal(checkpoint)  # as float32 this model has 300 GB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json", "vocab.json"])
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a": ' * 500 + "1" + "}" * 500, '{"a": ' + "1" * 5000 + "}", "\ud800", "[]", "{", "\x00"],
    ids=len,
)
def test_settings_that_are_not_acceptable_json_are_refused_in_a_line(checkpoint: Path, file: str, text: str) -> None:
    (checkpoint / file).write_bytes(text.encode("utf-8", errors="surrogatepass"))
    message = refusal(checkpoint)
    assert file in message
    assert "\n" not in message


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    name=st.sampled_from(sorted(marian_config())),
    value=st.recursive(
        JSON_VALUES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2)
    ),
)
def test_any_other_setting_is_read_or_refused(tmp_path: Path, name: str, value: object) -> None:
    directory = tmp_path / "model"
    if not directory.exists():
        write_marian(directory)
    (directory / "config.json").write_text(json.dumps({**marian_config(), name: value}))
    try:
        read_checkpoint(directory)
    except CheckpointError:
        return


def test_heads_that_do_not_divide_the_width_are_refused(checkpoint: Path) -> None:
    rewrite_json(checkpoint / "config.json", lambda c: c.update(decoder_attention_heads=3))
    assert "3 heads do not divide" in refusal(checkpoint)


def test_an_unknown_activation_is_named(checkpoint: Path) -> None:
    rewrite_json(checkpoint / "config.json", lambda c: c.update(activation_function="mish"))
    assert "'mish'" in refusal(checkpoint)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        pytest.param(54, "54 pieces with ids up to 53, the embedding has 53 rows", id="more pieces than rows"),
        pytest.param(40, "40 pieces, the embedding has 53 rows", id="fewer pieces than rows"),
    ],
)
def test_a_vocabulary_of_another_size_disagrees_with_the_embedding(checkpoint: Path, size: int, expected: str) -> None:
    (checkpoint / "vocab.json").write_text(json.dumps(vocabulary(size)))
    message = refusal(checkpoint)
    assert "vocabulary and embedding disagree" in message
    assert expected in message


def test_a_vocabulary_with_a_hole_is_refused(checkpoint: Path) -> None:
    rewrite_json(checkpoint / "vocab.json", lambda pieces: pieces.pop("▁20"))
    assert "each once" in refusal(checkpoint)


def test_a_vocabulary_of_words_is_refused(checkpoint: Path) -> None:
    (checkpoint / "vocab.json").write_text('{"a": "b"}')
    assert "must map pieces to ids" in refusal(checkpoint)


def test_an_embedding_padded_to_a_round_size_is_accepted(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "model", vocab_size=56)
    (directory / "vocab.json").write_text(json.dumps(vocabulary(51)))
    assert read_checkpoint(directory).config.target_vocabulary == 56


def test_a_missing_tokenizer_file_is_named(checkpoint: Path) -> None:
    (checkpoint / "target.spm").unlink()
    assert "target.spm" in refusal(checkpoint)


def test_a_missing_target_vocabulary_is_named_when_the_sizes_differ(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "model", share_encoder_decoder_embeddings=False, decoder_vocab_size=61)
    (directory / "target_vocab.json").unlink()
    assert "target_vocab.json" in refusal(directory)


def test_special_tokens_must_be_in_the_vocabulary(checkpoint: Path) -> None:
    rewrite_json(checkpoint / "config.json", lambda c: c.update(decoder_start_token_id=53))
    assert "decoder_start token 53" in refusal(checkpoint)


def test_impossible_generation_settings_are_refused(checkpoint: Path) -> None:
    (checkpoint / "generation_config.json").write_text('{"num_beams": 0, "eos_token_id": 0, "pad_token_id": 52}')
    assert "beam_size=0" in refusal(checkpoint)


def test_what_transformers_can_not_load_is_one_line_of_error(checkpoint: Path) -> None:
    from dragoman.export.verification.original import HuggingFaceModel

    tokens = read_checkpoint(checkpoint).tokens
    rewrite_json(checkpoint / "config.json", lambda c: c.update(model_type=1_000_000_000))
    with pytest.raises(ExportError, match="transformers can't load") as caught:
        HuggingFaceModel(checkpoint, tokens)
    assert "\n" not in str(caught.value)


def test_settings_that_transformers_refuses_are_one_line_of_error(checkpoint: Path) -> None:
    from dragoman.export.verification.original import HuggingFaceModel

    read = read_checkpoint(checkpoint)
    (checkpoint / "generation_config.json").write_text(json.dumps({"bad_words_ids": []}), encoding="utf-8")
    with pytest.raises(ExportError, match="transformers refuses the checkpoint's settings") as caught:
        HuggingFaceModel(checkpoint, read.tokens).generate([[5, 0]], read.generation)
    assert "\n" not in str(caught.value)
