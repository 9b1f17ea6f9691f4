"""Weights that are missing, damaged or dangerous are refused with a message that names them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from refused_checkpoints import refusal
from safetensors.torch import save_file

from dragoman.export.checkpoint import read_checkpoint
from random_marian import marian_config, marian_weights, write_marian


def test_all_weights_that_do_not_fit_are_listed_at_once(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    del weights["model.encoder.layers.0.fc1.bias"]
    del weights["model.decoder.layers.0.encoder_attn.v_proj.weight"]
    weights["model.encoder.layers.7.fc1.bias"] = torch.zeros(24)
    weights["model.decoder.layers.0.fc2.weight"] = torch.zeros(3, 5)
    weights["model.decoder.layers.0.self_attn.k_proj.bias"][2] = float("nan")
    weights["model.encoder.layers.0.fc2.weight"][1, 1] = float("inf")
    message = refusal(write_marian(tmp_path / "model", weights=weights))
    assert "missing: model.encoder.layers.0.fc1.bias [24]" in message
    assert "missing: model.decoder.layers.0.encoder_attn.v_proj.weight [16, 16]" in message
    assert "unused: model.encoder.layers.7.fc1.bias [24]" in message
    assert "misshaped: model.decoder.layers.0.fc2.weight is [3, 5], the settings say [16, 24]" in message
    assert "not finite: model.decoder.layers.0.self_attn.k_proj.bias has 1 " in message
    assert "not finite: model.encoder.layers.0.fc2.weight has 1 " in message
    assert message.startswith("6 weights")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_logits_bias_may_mask_tokens_and_nothing_else(tmp_path: Path, value: float) -> None:
    weights = marian_weights(marian_config())
    weights["final_logits_bias"][0, 5] = float("-inf")
    masked = read_checkpoint(write_marian(tmp_path / "masked", weights=weights)).model.output.bias
    assert masked[5] == float("-inf")
    weights["final_logits_bias"][0, 6] = value
    assert "not finite: final_logits_bias" in refusal(write_marian(tmp_path / "broken", weights=weights))


def test_a_thousand_problems_are_summarised(tmp_path: Path) -> None:
    extra = {f"model.extra.{index}": torch.zeros(1) for index in range(1000)}
    message = refusal(write_marian(tmp_path / "model", weights={**marian_weights(marian_config()), **extra}))
    assert "1000 weights" in message
    assert "960 more" in message


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    weights["model.decoder.layers.0.fc2.bias"] = torch.zeros(16, dtype=torch.int64)
    assert "not a float: model.decoder.layers.0.fc2.bias" in refusal(write_marian(tmp_path / "model", weights=weights))


def test_a_tied_projection_that_differs_from_the_embedding_is_a_contradiction(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    weights["lm_head.weight"] = weights["model.shared.weight"] + 1
    assert "contradictory: lm_head.weight" in refusal(write_marian(tmp_path / "model", weights=weights))


def test_stored_positions_that_are_not_the_sinusoids_are_a_contradiction(tmp_path: Path) -> None:
    weights = marian_weights(marian_config())
    weights["model.encoder.embed_positions.weight"] = torch.zeros(32, 16)
    message = refusal(write_marian(tmp_path / "model", weights=weights))
    assert "contradictory: model.encoder.embed_positions.weight" in message


def test_the_error_for_missing_weights_lists_the_expected_files(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    message = refusal(checkpoint)
    assert "model.safetensors" in message
    assert "pytorch_model.bin" in message


def test_weights_of_another_framework_are_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "tf_model.h5")
    assert "TensorFlow" in refusal(checkpoint)


def test_a_git_lfs_pointer_is_not_taken_for_the_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "git lfs pull" in refusal(checkpoint)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_safetensors_file_is_reported_as_such(checkpoint: Path, share: float) -> None:
    path = checkpoint / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "truncated or corrupt" in refusal(checkpoint)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_pickled_file_is_reported_as_such(checkpoint: Path, share: float) -> None:
    path = as_pickled(checkpoint)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "corrupt" in refusal(checkpoint)


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(checkpoint: Path, tmp_path: Path) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "harm",))

    (checkpoint / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Malicious()}, checkpoint / "pytorch_model.bin", pickle_module=pickle)
    assert "could run code" in refusal(checkpoint)
    assert not (tmp_path / "harm").exists()


def test_a_pickled_file_must_be_a_state_dict(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save([torch.zeros(2)], checkpoint / "pytorch_model.bin")
    assert "not a state dict" in refusal(checkpoint)


def test_a_missing_shard_is_named(checkpoint: Path) -> None:
    as_shards(checkpoint)
    (checkpoint / "model-00002.safetensors").unlink()
    assert "model-00002.safetensors" in refusal(checkpoint)


def test_a_shard_outside_the_checkpoint_is_refused(checkpoint: Path) -> None:
    as_shards(checkpoint, more="../elsewhere.safetensors")
    assert "outside the checkpoint" in refusal(checkpoint)


def test_an_index_that_promises_too_much_is_refused(checkpoint: Path) -> None:
    as_shards(checkpoint, ghost="model-00001.safetensors")
    assert "ghost" in refusal(checkpoint)


def as_pickled(checkpoint: Path) -> Path:
    (checkpoint / "model.safetensors").unlink()
    path = checkpoint / "pytorch_model.bin"
    torch.save(marian_weights(marian_config()), path)
    return path


def as_shards(checkpoint: Path, **more: str) -> None:
    """`more`: weights that the index has beside those that there are."""
    (checkpoint / "model.safetensors").unlink()
    weights = sorted(marian_weights(marian_config()).items())
    halves = {"model-00001.safetensors": dict(weights[:9]), "model-00002.safetensors": dict(weights[9:])}
    for name, shard in halves.items():
        save_file(shard, checkpoint / name)
    index = {"weight_map": {weight: name for name, shard in halves.items() for weight in shard} | more}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
