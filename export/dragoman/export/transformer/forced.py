"""What forced decoding needs of a model besides its layers: the heads that align, and where targets lie among the logits."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from dragoman.export.transformer.config import TransformerConfig
from dragoman.export.transformer.model import OutputProjection, ShortOutputProjection

__all__ = ["aligning_heads", "head_weights", "places_of"]


def aligning_heads(config: TransformerConfig) -> tuple[tuple[int, int], ...]:
    """Layer and number of each head whose attention is averaged: the chosen ones, else all of the layer in the middle."""
    middle = config.decoder_layers // 2
    return config.alignment_heads or tuple((middle, head) for head in range(config.decoder_heads))


def head_weights(config: TransformerConfig) -> dict[int, Tensor]:
    """By layer, the weight of each of its heads (heads,); layers without a part in the alignment are left out."""
    heads = aligning_heads(config)
    weights: dict[int, Tensor] = {}
    for layer, head in heads:
        of_layer = weights.setdefault(layer, torch.zeros(config.decoder_heads, device="cpu"))
        of_layer[head] = 1.0 / len(heads)
    return weights


def places_of(output: OutputProjection) -> Tensor | None:
    """The place of each token's logit (vocabulary,), −1 where it has none; None when a token is its own place."""
    if not isinstance(output, ShortOutputProjection):
        return None
    shortlist = cast(Tensor, output.shortlist)
    places = torch.full((output.vocabulary,), -1, dtype=torch.int64)
    places[shortlist] = torch.arange(len(shortlist))
    return places
