"""The Transformer with a checkpoint's weights: each is set exactly once, and all errors are reported together.

Shapes are compared before any memory is allocated. Weights are read on request, one module or all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from dragoman.errors import CheckpointError
from dragoman.export.transformer import Transformer, TransformerConfig
from dragoman.export.transformer.linear import Linear
from dragoman.export.transformer.source import copied

__all__ = ["JOINED", "CheckpointWeights", "WeightNames", "open_checkpoint_weights"]

JOINED = {"qkv": ("query", "key", "value"), "key_value": ("key", "value")}
"""Linear layers that we compute as one and checkpoints store apart."""

AGREEMENT = 1e-3
"""How far two copies of one weight may differ: a sinusoid stored in half precision is off by 5e-4."""

LISTED = 40

M = TypeVar("M", bound=nn.Module)


class WeightNames(Protocol):
    """The part of a reader that maps the names of weights."""

    def weight_names(self, ours: str) -> tuple[str, ...]:
        """Every name that the checkpoint may use for this weight; copies under several names must agree."""

    def is_optional(self, ours: str) -> bool:
        """Whether a checkpoint may lack this weight: it is zero, or computed."""

    def is_ignored(self, theirs: str) -> bool:
        """Whether this weight of the checkpoint has no part in the computation."""


@dataclass(frozen=True, slots=True)
class Part:
    """The use of one checkpoint tensor: a whole weight, or a slice of a joined one."""

    ours: str
    names: tuple[str, ...]  # where the checkpoint has it, the first one to be used
    shape: tuple[int, ...]  # as checkpoints shape it: linear weights (outputs, inputs)
    computed: Tensor | None  # its value is known without the checkpoint


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter of the Transformer and the parts that it is made of."""

    meta: Tensor
    is_linear: bool
    parts: tuple[Part, ...]


class CheckpointWeights:
    """The weights of a checkpoint that fit the model. Each is read anew whenever a module is filled."""

    def __init__(self, structure: Transformer, weights: Sequence[Weight], tensors: Mapping[str, Tensor]) -> None:
        self.structure, self._tensors = structure, tensors
        self._weights = {id(weight.meta): weight for weight in weights if weight.meta.is_meta}
        self._model: Transformer | None = None

    @property
    def model(self) -> Transformer:
        """The whole model; it stays in memory until `release`."""
        if self._model is None:
            self._model = self.filled(self.structure)
        return self._model

    def filled(self, module: M) -> M:
        """A copy of a module of `structure` with its weights."""
        wanted = {id(parameter) for parameter in module.parameters()} & self._weights.keys()
        return copied(module, {key: _value(self._weights[key], self._tensors) for key in wanted})

    def release(self) -> None:
        """Free the whole model."""
        self._model = None


def open_checkpoint_weights(
    config: TransformerConfig, tensors: Mapping[str, Tensor], reader: WeightNames
) -> CheckpointWeights:
    """The model's weights; one CheckpointError lists all weights that are missing, unused, misshaped or NaN."""
    with torch.device("meta"):
        model = Transformer(config).eval()
    weights = list(_weights(model, tensors, reader))
    problems = [problem for weight in weights for part in weight.parts for problem in _problems(part, tensors, reader)]
    used = {name for weight in weights for part in weight.parts for name in part.names}
    unused = [name for name in sorted(set(tensors) - used) if not reader.is_ignored(name)]
    problems += [f"unused: {name} {list(tensors[name].shape)}" for name in unused]
    if problems:
        listed = problems[:LISTED] + ([f"… and {len(problems) - LISTED} more"] if len(problems) > LISTED else [])
        raise CheckpointError(
            f"{len(problems)} weights do not fit the configuration; check that the settings belong to the weights:\n  "
            + "\n  ".join(listed)
        )
    return CheckpointWeights(model, weights, tensors)


def _weights(model: Transformer, tensors: Mapping[str, Tensor], reader: WeightNames) -> Iterator[Weight]:
    """What is to be filled. Shared weights come once: `named_parameters` knows them by their first name."""
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        is_linear = leaf == "weight" and isinstance(model.get_submodule(owner), Linear)
        shape = tuple(parameter.t().shape if is_linear else parameter.shape)
        prefix, _, layer = owner.rpartition(".")
        ours = [f"{prefix}.{part}.{leaf}" for part in JOINED[layer]] if layer in JOINED else [name]
        sliced = (shape[0] // len(ours), *shape[1:])  # outputs are the first dimension here
        parts = tuple(Part(one, _present(one, tensors, reader), sliced, None) for one in ours)
        yield Weight(parameter, is_linear, parts)
    for name, buffer in model.named_buffers():
        yield Weight(buffer, False, (Part(name, _present(name, tensors, reader), tuple(buffer.shape), buffer),))


def _present(ours: str, tensors: Mapping[str, Tensor], reader: WeightNames) -> tuple[str, ...]:
    return tuple(name for name in reader.weight_names(ours) if name in tensors)


def _problems(part: Part, tensors: Mapping[str, Tensor], reader: WeightNames) -> list[str]:
    if not part.names and part.computed is None and not reader.is_optional(part.ours):
        return [f"missing: {reader.weight_names(part.ours)[0]} {list(part.shape)}"]
    problems: list[str] = []
    agreed = part.computed
    for name in part.names:
        tensor = tensors[name]
        if misfit := _misfit(part, name, tensor):
            problems += misfit
        elif agreed is None:
            agreed = tensor
        elif not _agree(tensor.reshape(part.shape), agreed.reshape(part.shape)):
            problems.append(f"contradictory: {name} is not the {part.ours} that the configuration makes it")
    return problems


def _misfit(part: Part, name: str, tensor: Tensor) -> list[str]:
    expected, actual = part.shape, tuple(tensor.shape)
    if actual not in (expected, (1, *expected)):  # final_logits_bias is stored (1, vocabulary)
        return [f"misshaped: {name} is {list(actual)}, the settings say {list(expected)}"]
    if not tensor.is_floating_point():
        return [f"not a float: {name} is {tensor.dtype}"]
    least, most = (float(value) for value in tensor.aminmax())  # NaN is both
    masks = part.ours == "output.bias"  # −∞ there is a token that is never generated
    if most < torch.inf and (least > -torch.inf or masks):
        return []
    bad = int((~torch.isfinite(tensor)).sum())
    return [f"not finite: {name} has {bad} NaN or infinite values of {tensor.numel()}"]


def _agree(one: Tensor, other: Tensor) -> bool:
    if one.data_ptr() == other.data_ptr():
        return True
    return torch.allclose(one.to(other.dtype), other, rtol=0.0, atol=AGREEMENT)


def _value(weight: Weight, tensors: Mapping[str, Tensor]) -> nn.Parameter:
    """The float32 weight: the checkpoint's memory where nothing has to be converted or joined."""
    parts = [
        tensors[part.names[0]].reshape(part.shape).float() if part.names else torch.zeros(part.shape)
        for part in weight.parts
    ]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return nn.Parameter(whole.t() if weight.is_linear else whole, requires_grad=False)
