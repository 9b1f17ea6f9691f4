"""The weights of a CTranslate2 model under the names of the Transformer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.export.checkpoint.formats.ctranslate2.binary import ModelBinary, Variable

__all__ = ["CTranslate2Weights", "OurNames", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a weight is: a variable, or one of `parts` equal parts of its rows; `zero_row`: one more row, of zeros."""

    variable: Variable
    part: int = 0
    parts: int = 1
    zero_row: bool = False
    closed_row: bool = False  # one more element, −∞: a token that is never generated


class CTranslate2Weights(Mapping[str, Tensor]):
    """The weights by their names in the Transformer, each computed from the file when it is requested."""

    def __init__(self, binary: ModelBinary, places: Mapping[str, Place], vocabulary: int | None = None) -> None:
        """`vocabulary`: a row of zeros follows so many target words, though no bias is stored that could close it."""
        self._binary, self._places = binary, places
        self._open = vocabulary if "output.bias" not in places else None

    def __getitem__(self, name: str) -> Tensor:
        if name == "output.bias" and self._open is not None:
            return torch.cat([torch.zeros(self._open), torch.full((1,), -torch.inf)])
        place = self._places[name]
        whole = self._binary.tensor(place.variable)
        if place.parts > 1:
            whole = whole.tensor_split(place.parts)[place.part]
        if place.zero_row:
            whole = torch.cat([whole, whole.new_zeros(1, *whole.shape[1:])])
        if place.closed_row:
            whole = torch.cat([whole, whole.new_full((1,), -torch.inf)])
        return whole

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        if self._open is not None:
            yield "output.bias"

    def __len__(self) -> int:
        return len(self._places) + (self._open is not None)


class OurNames:
    """For weights that already have the names of the Transformer."""

    def weight_names(self, ours: str) -> tuple[str, ...]:
        """The same."""
        return (ours,)

    def is_optional(self, ours: str) -> bool:
        """A converter leaves out the biases of layers that have none, though others have."""
        return ours.endswith(".bias")

    def is_ignored(self, theirs: str) -> bool:  # noqa: ARG002
        """All of them are ours."""
        return False
