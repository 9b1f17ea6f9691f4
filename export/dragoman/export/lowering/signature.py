"""Names and shapes of a graph's inputs and outputs: the tensors of the bundle contract."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Named", "Signature"]

Named = dict[str, tuple[int | str, ...]]
"""Tensors by name, in order; a dimension is a number, or a name when it varies."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a graph."""

    inputs: Named
    outputs: Named
