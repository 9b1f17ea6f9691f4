"""Symmetric int8 with a scale for every row of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "Quantised", "quantise_rows"]

LARGEST = 127
"""Weights that another trainer has quantised with a scale for each row, as CTranslate2 does, keep their integers."""

SMALLEST_NORMAL = 2.0**-126
"""A row of subnormal numbers has no scale of its own: all of it is nearly zero."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """w ≈ values · scale, with a scale for every output (rows of `values`)."""

    values: NDArray[np.int8]  # (outputs, inputs)
    scale: NDArray[np.float32]  # (outputs,)


def quantise_rows(weight: NDArray[np.float32]) -> Quantised:
    """Symmetric, one scale a row, values in −127 … 127; a row of zeros stays zero."""
    peak = np.abs(weight).max(axis=1)
    scale = np.where(peak > 0, np.maximum(peak / LARGEST, SMALLEST_NORMAL), 1.0).astype(np.float32)
    values = np.rint(weight / scale[:, None])
    return Quantised(values.astype(np.int8), scale)
