"""Symmetric int8 with a scale for every row of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["EIGHT_BITS", "SEVEN_BITS", "Quantised", "quantise_rows"]

SEVEN_BITS, EIGHT_BITS = 63, 127
"""Products of 8-bit weights saturate in the 16-bit sums of AVX2 without VNNI; 7-bit ones can't.
Weights that are only looked up, never multiplied, may use all 8 bits."""

SMALLEST_NORMAL = 2.0**-126
"""A row of subnormal numbers has no scale of its own: all of it is nearly zero."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """w ≈ values · scale, with a scale for every output (rows of `values`)."""

    values: NDArray[np.int8]  # (outputs, inputs)
    scale: NDArray[np.float32]  # (outputs,)


def quantise_rows(weight: NDArray[np.float32], largest: int = SEVEN_BITS) -> Quantised:
    """Symmetric, one scale a row, values in −largest … largest; a row of zeros stays zero."""
    peak = np.abs(weight).max(axis=1)
    scale = np.where(peak > 0, np.maximum(peak / largest, SMALLEST_NORMAL), 1.0).astype(np.float32)
    values = np.rint(weight / scale[:, None])
    return Quantised(values.astype(np.int8), scale)
