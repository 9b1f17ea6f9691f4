"""The source of positions: a table in the file (learned, or a buffer), a formula, or none."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.description import Description
from dragoman.export.transformer.config import LARGEST_TABLE
from dragoman.export.transformer.positions import fairseq_sinusoids, sinusoids

__all__ = ["FORMULAS", "computed_positions", "interleaved_sinusoids", "stored_positions"]

DEFAULT_LENGTH = 1024


def interleaved_sinusoids(positions: int, width: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(…), as the paper orders them; in float32, as torch's tutorial."""
    angle = torch.arange(positions).float()[:, None]  # (positions, 1)
    frequency = torch.exp(torch.arange(0, width, 2).float() * (-math.log(10000.0) / width))
    table = torch.zeros(positions, width)
    table[:, 0::2] = torch.sin(angle * frequency)
    table[:, 1::2] = torch.cos(angle * frequency)[:, : width // 2]
    return table


FORMULAS: dict[str, Callable[[int, int], Tensor]] = {
    "interleaved": interleaved_sinusoids,
    "halves": sinusoids,
    "fairseq": fairseq_sinusoids,
    "none": torch.zeros,
}


def computed_positions(positions: Description, width: int) -> Tensor:
    """(length, width): the table that the formula gives, from the offset on."""
    formula = positions.one_of("formula", FORMULAS, "none")
    length, offset = positions.number("length", DEFAULT_LENGTH), _offset(positions)
    if (length + offset) * width > LARGEST_TABLE:
        raise CheckpointError(f"{length} positions of {width} numbers are more than {LARGEST_TABLE} numbers")
    return FORMULAS[formula](length + offset, width)[offset:]


def stored_positions(positions: Description, tensor: Tensor, name: str, width: int) -> Tensor:
    """The table in the file, (n, d) with or without a dimension of one somewhere, from the offset on."""
    offset = _offset(positions)
    if tensor.dim() > 4 or tensor.numel() % width or tensor.shape[-1] != width or not tensor.is_floating_point():
        raise CheckpointError(f"{name} {list(tensor.shape)} is not a table of positions of {width} numbers each")
    table = tensor.reshape(-1, width)
    if list(tensor.squeeze().shape) not in ([len(table), width], [width]) or len(table) <= offset:
        raise CheckpointError(f"{name} {list(tensor.shape)} is not a table of positions, {offset} or more of them")
    return table[offset:]


def _offset(positions: Description) -> int:
    offset = positions.raw("offset", 0)
    if type(offset) is not int or not 0 <= offset < 1 << 20:
        raise CheckpointError(f"{positions.where} must give 'offset' as a whole number from 0 on")
    return offset
