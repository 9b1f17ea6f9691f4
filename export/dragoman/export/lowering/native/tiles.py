"""Weights as the custom operators read them: in tiles of sixteen outputs."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["TILE", "in_float_tiles", "in_tiles"]

Weight = TypeVar("Weight", np.float32, np.int8)

TILE, QUAD, EIGHT = 16, 4, 8


def in_float_tiles(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(outputs, inputs) -> (tiles, 16 · inputs): for every input, its weights for each output of a tile in turn."""
    inputs = values.shape[1]
    return _padded(values).reshape(-1, TILE, inputs).transpose(0, 2, 1).reshape(-1, TILE * inputs)


def in_tiles(values: NDArray[np.int8]) -> NDArray[np.int8]:
    """(outputs, inputs) -> (tiles, 16 · inputs): for every four inputs, the four weights of each output in turn.

    Columns of zeros make the number of inputs a multiple of eight.
    """
    values = np.pad(values, ((0, 0), (0, -values.shape[1] % EIGHT)))
    inputs = values.shape[1]
    return _padded(values).reshape(-1, TILE, inputs // QUAD, QUAD).transpose(0, 2, 1, 3).reshape(-1, TILE * inputs)


def _padded(values: NDArray[Weight]) -> NDArray[Weight]:
    """With rows of zeros up to a whole number of tiles."""
    outputs, inputs = values.shape
    padded = np.zeros((-(-outputs // TILE) * TILE, inputs), values.dtype)
    padded[:outputs] = values
    return padded
