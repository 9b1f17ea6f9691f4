"""Where a model's weights come from: all at once, or a module at a time, so that they need not fit into memory together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

import torch
from torch import nn

from dragoman.export.transformer.model import ListedOutputProjection, ShortOutputProjection, Transformer

__all__ = ["Variant", "WeightSource", "WholeModel"]

M = TypeVar("M", bound=nn.Module)


class WeightSource(Protocol):
    """A model and its weights."""

    @property
    def structure(self) -> Transformer:
        """The modules; their parameters need not have values."""

    @property
    def model(self) -> Transformer:
        """The whole model with all its weights, in memory."""

    def filled(self, module: M) -> M:
        """A copy of a module of `structure` with its weights. They are freed with it."""


class WholeModel:
    """A model in memory."""

    def __init__(self, model: Transformer) -> None:
        self.structure = self.model = model

    def filled(self, module: M) -> M:
        """The module itself."""
        return module


class Variant:
    """The same weights for a model that can generate the tokens of a shortlist only, has lists of them for some languages,
    or is aligned by some of its heads."""

    def __init__(
        self,
        whole: WeightSource,
        shortlist: Sequence[int] | None = None,
        heads: Sequence[tuple[int, int]] = (),
        shortlists: Sequence[Sequence[int]] = (),
    ) -> None:
        self._whole, self._shortlist, self._heads, self._shortlists = whole, shortlist, heads, shortlists
        self.structure = self._varied(whole.structure)

    @property
    def model(self) -> Transformer:
        """The variant with all its weights."""
        return self._varied(self._whole.model)

    def filled(self, module: M) -> M:
        """All modules but an output projection with shortlists are the whole model's own."""
        if module is not self.structure.output or module is self._whole.structure.output:
            return self._whole.filled(module)
        output = self._whole.filled(self._whole.structure.output)
        if self._shortlist is None:
            return cast(M, ListedOutputProjection(output, self._shortlists))
        return cast(M, ShortOutputProjection(output, torch.tensor(self._shortlist)))

    def _varied(self, model: Transformer) -> Transformer:
        model = model if self._shortlist is None else model.shortened(self._shortlist)
        model = model.listed(self._shortlists) if self._shortlists else model
        return model.aligned_by(self._heads) if self._heads else model


def copied(module: M, values: dict[int, nn.Parameter]) -> M:
    """A copy of a module whose parameters, found by their identity, have values; tied weights stay tied."""
    whole = copy.copy(module)
    whole._parameters = {
        name: values.get(id(parameter), parameter) if parameter is not None else None
        for name, parameter in module._parameters.items()
    }
    done: dict[int, nn.Module] = {}
    whole._modules = {
        name: None if child is None else done.setdefault(id(child), copied(child, values))
        for name, child in module._modules.items()
    }
    return whole
