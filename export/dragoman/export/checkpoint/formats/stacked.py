"""Projections that a trainer stores stacked: queries, keys and values above each other."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from dragoman.errors import CheckpointError

__all__ = ["unstacked"]


def unstacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`….in_proj_weight` (3·d, d) as `….q_proj.weight`, `….k_proj.weight` and `….v_proj.weight`; biases alike.

    The three are views: nothing is copied.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        if leaf not in ("in_proj_weight", "in_proj_bias"):
            found[name] = tensor
            continue
        if tensor.dim() < 1 or tensor.shape[0] % 3:
            raise CheckpointError(f"{name} {list(tensor.shape)} should be queries, keys and values above each other")
        for projection, part in zip("qkv", tensor.chunk(3), strict=True):
            found[f"{owner}.{projection}_proj.{leaf.removeprefix('in_proj_')}"] = part
    return found
