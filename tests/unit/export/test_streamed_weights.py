"""Large models: weights are read a module at a time, written as they come, and never in memory twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.lowering.native.lowering import tiled
from dragoman.export.transformer import Variant, WholeModel
from dragoman.export.weights import WeightsFile, in_memory
from random_marian import write_marian


class Recorded(Mapping[str, Tensor]):
    """Remembers in which order weights are read."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors, self.read = tensors, list[str]()

    def __getitem__(self, name: str) -> Tensor:
        self.read.append(name)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def test_each_weight_is_read_once_and_a_layer_ends_before_the_next_begins(tmp_path: Path) -> None:
    weights = read_checkpoint(write_marian(tmp_path / "model", encoder_layers=3, decoder_layers=3)).weights
    recorded = Recorded(weights._tensors)
    weights._tensors = recorded
    tiled(weights, quantised=True, keep=in_memory)
    assert sorted(recorded.read) == sorted(set(recorded.read))
    layers = [name.split(".")[1:4:2] for name in recorded.read if ".layers." in name]
    assert layers == sorted(layers, key=lambda one: (one[0] != "encoder", one[1]))


def test_a_model_that_is_filled_bit_by_bit_is_the_whole_model(tmp_path: Path) -> None:
    weights = read_checkpoint(write_marian(tmp_path / "model")).weights
    whole = weights.model
    for name, module in weights.structure.named_modules():
        for leaf, parameter in weights.filled(module).named_parameters():
            assert torch.equal(parameter, whole.get_parameter(f"{name}.{leaf}".lstrip(".")))
    assert whole.output.weight is whole.target_embedding.weight  # tied weights stay tied
    assert weights.model is whole
    weights.release()
    assert weights.model is not whole


def test_a_variant_fills_its_own_output_and_everything_else_from_the_whole(tmp_path: Path) -> None:
    weights = read_checkpoint(write_marian(tmp_path / "model")).weights
    short = Variant(weights, shortlist=(0, 5, 7), heads=((0, 1),))
    assert short.structure.config.alignment_heads == ((0, 1),)
    filled = short.filled(short.structure.output)
    assert torch.equal(filled.weight, weights.model.output.weight[[0, 5, 7]])
    assert torch.equal(short.model.output.weight, filled.weight)
    assert WholeModel(weights.model).filled(weights.model) is weights.model


def test_an_array_that_is_kept_in_parts_is_mapped_from_the_file(tmp_path: Path) -> None:
    array = np.arange(40_000, dtype=np.float32).reshape(-1, 8)
    with WeightsFile(tmp_path) as weights:
        kept = weights.keep(part for part in np.split(array, [100, 3000]))
        size = (tmp_path / "weights.bin").stat().st_size
        again = weights.keep([array])
        assert torch.equal(kept, torch.from_numpy(array))
        assert torch.equal(again, kept)
        assert (tmp_path / "weights.bin").stat().st_size == size == array.nbytes  # equal arrays are stored once
