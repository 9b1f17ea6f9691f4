"""Where a token stands: sinusoids, a learned table, or a bias on the attention scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users write it
from torch import Tensor, nn

from dragoman.export.transformer.config import TransformerConfig
from dragoman.export.transformer.linear import Map

__all__ = ["PositionTable", "RelativeBias", "fairseq_sinusoids", "relative_bucket", "sinusoids"]


def sinusoids(positions: int, width: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(p / 10000^(2i/d)); (positions, width).

    Sines fill the first half and cosines the second (the paper interleaves them; a trained model does not care, but
    all checkpoints we read have learned it this way). Computed in float64: float32 angles are off in the 4th digit.
    """
    angle = torch.arange(positions, dtype=torch.float64, device="cpu")[:, None]  # (positions, 1)
    index = torch.arange(0, width, 2, dtype=torch.float64, device="cpu")
    frequency = 10000.0 ** (-index / width)  # (ceil(width / 2),)
    sines, cosines = torch.sin(angle * frequency), torch.cos(angle * frequency[: width // 2])
    return torch.cat([sines, cosines], dim=1).float()


def fairseq_sinusoids(positions: int, width: int) -> Tensor:
    """sin(p · f_i) for all i, then cos(p · f_i), with f_i = 10000^(−i / (d/2 − 1)); (positions, width).

    In float32, as fairseq and Hugging Face compute it: models were trained with these roundings.
    """
    half = width // 2
    step = math.log(10000) / (half - 1)
    frequency = torch.exp(torch.arange(half, dtype=torch.int64, device="cpu").float() * -step)
    angle = torch.arange(positions, dtype=torch.int64, device="cpu").float()[:, None] * frequency
    table = torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
    return torch.cat([table, table.new_zeros(positions, width % 2)], dim=1)


COMPUTED = {"sinusoidal": sinusoids, "fairseq_sinusoidal": fairseq_sinusoids}


class PositionTable(Map):
    """One vector a position, added to the token's embedding. Sinusoids are computed; a learned table is a weight."""

    weight: Tensor

    def __init__(self, config: TransformerConfig, max_positions: int) -> None:
        super().__init__()
        self.offset = config.position_offset
        rows = max_positions + self.offset
        if config.positions in COMPUTED:
            self.register_buffer("weight", COMPUTED[config.positions](rows, config.d_model), persistent=False)
        else:
            self.weight = nn.Parameter(torch.empty(rows, config.d_model), requires_grad=False)

    def forward(self, positions: Tensor) -> Tensor:  # (…) -> (…, d_model)
        return F.embedding(positions + self.offset if self.offset else positions, self.weight)


def relative_bucket(distance: Tensor, buckets: int, max_distance: int, both_sides: bool) -> Tensor:
    """T5's bucket of a signed distance (key − query): near ones exact, far ones logarithmic, the furthest together."""
    bucket = torch.zeros_like(distance)
    if both_sides:
        buckets //= 2
        bucket = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)  # the future is masked anyway
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return bucket + torch.where(distance < exact, distance, far)


class RelativeBias(nn.Module):
    """score(q, k) += b[head, bucket(k − q)]: a table for all layers of a stack, or one for each layer."""

    if TYPE_CHECKING:

        def __call__(self, queries: Tensor, keys: Tensor) -> Tensor: ...

    def __init__(self, config: TransformerConfig, heads: int, both_sides: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.relative_buckets, heads), requires_grad=False)
        self.buckets, self.max_distance = config.relative_buckets, config.relative_max_distance
        self.both_sides = both_sides

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """`queries` (rows, q) and `keys` (k,) are positions; the bias is (rows, heads, q, k)."""
        distance = keys[None, None, :] - queries[:, :, None]  # (rows, q, k)
        bucket = relative_bucket(distance, self.buckets, self.max_distance, self.both_sides)
        return self.weight[bucket].permute(0, 3, 1, 2)
