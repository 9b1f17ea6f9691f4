"""Names and shapes of a graph's inputs and outputs: the half of the bundle contract that tensors have."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Named", "Signature"]

Named = dict[str, tuple[int | str, ...]]
"""Tensors by name, in order; a dimension is a number, or a name when it varies."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph takes and gives."""

    inputs: Named
    outputs: Named
