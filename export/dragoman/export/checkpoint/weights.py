"""Filling our Transformer from a checkpoint: each weight set exactly once, everything wrong reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dragoman.errors import CheckpointError
from dragoman.export.transformer.linear import Linear
from dragoman.export.transformer.model import Transformer

__all__ = ["WeightNames", "fill"]

FUSED = {"qkv": ("query", "key", "value"), "key_value": ("key", "value")}
"""Linear layers that we compute as one and checkpoints store apart."""

AGREEMENT = 1e-3
"""How far two copies of one weight may differ: a sinusoid stored in half precision is off by 5e-4."""

LISTED = 40


class WeightNames(Protocol):
    """The part of a reader that knows what its architecture calls our weights."""

    def weight_names(self, ours: str) -> tuple[str, ...]:
        """Every name the checkpoint may use for our weight; copies under several names must agree."""

    def is_optional(self, ours: str) -> bool:
        """A checkpoint without this weight is whole: it is zero, or computed."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that one checkpoint tensor fills: a weight of ours, or a slice of a fused one."""

    ours: str
    target: Tensor  # shaped as checkpoints shape it: linear weights (outputs, inputs)
    computed: bool  # its value is known without the checkpoint


def fill(model: Transformer, tensors: Mapping[str, Tensor], reader: WeightNames) -> None:
    """Copy every tensor where it belongs; one CheckpointError lists all that are missing, unused, misshaped or NaN."""
    problems: list[str] = []
    unused = set(tensors)
    for slot in _slots(model):
        names = reader.weight_names(slot.ours)
        present = [name for name in names if name in tensors]
        unused.difference_update(present)
        if not present and not (slot.computed or reader.is_optional(slot.ours)):
            problems.append(f"missing: {names[0]} {list(slot.target.shape)}")
        elif not present and not slot.computed:
            slot.target.zero_()
        for index, name in enumerate(present):
            compare = slot.computed or index > 0
            problems += _repeated(slot, name, tensors[name]) if compare else _copied(slot, name, tensors[name])
    problems += [f"unused: {name} {list(tensors[name].shape)}" for name in sorted(unused)]
    if problems:
        listed = problems[:LISTED] + ([f"… and {len(problems) - LISTED} more"] if len(problems) > LISTED else [])
        raise CheckpointError(
            f"{len(problems)} weights do not fit the configuration; check that config.json belongs to the weights:\n  "
            + "\n  ".join(listed)
        )


def _slots(model: Transformer) -> Iterator[Slot]:
    """The places to fill. Shared weights come once: `named_parameters` knows them by their first name."""
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        target = parameter.data
        if leaf == "weight" and isinstance(model.get_submodule(owner), Linear):
            target = target.t()
        prefix, _, layer = owner.rpartition(".")
        parts = FUSED.get(layer, ())
        if not parts:
            yield Slot(name, target, computed=False)
        for part, piece in zip(parts, target.chunk(len(parts) or 1), strict=False):  # outputs are the first dimension here
            yield Slot(f"{prefix}.{part}.{leaf}", piece, computed=False)
    for name, buffer in model.named_buffers():
        yield Slot(name, buffer, computed=True)


def _copied(slot: Slot, name: str, tensor: Tensor) -> list[str]:
    if problems := _misfit(slot, name, tensor):
        return problems
    slot.target.copy_(tensor.reshape(slot.target.shape))  # converts, too: checkpoints may be stored in half precision
    return []


def _repeated(slot: Slot, name: str, tensor: Tensor) -> list[str]:
    if problems := _misfit(slot, name, tensor):
        return problems
    if torch.allclose(tensor.reshape(slot.target.shape).to(slot.target.dtype), slot.target, rtol=0.0, atol=AGREEMENT):
        return []
    return [f"contradictory: {name} is not the {slot.ours} that the configuration makes it"]


def _misfit(slot: Slot, name: str, tensor: Tensor) -> list[str]:
    expected, actual = tuple(slot.target.shape), tuple(tensor.shape)
    if actual not in (expected, (1, *expected)):  # final_logits_bias is stored (1, vocabulary)
        return [f"misshaped: {name} is {list(actual)}, config.json says {list(expected)}"]
    if not tensor.is_floating_point():
        return [f"not a float: {name} is {tensor.dtype}"]
    if bad := int((~torch.isfinite(tensor)).sum()):
        return [f"not finite: {name} has {bad} NaN or infinite values of {tensor.numel()}"]
    return []
