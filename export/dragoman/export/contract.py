"""Names and shapes of the graphs' inputs and outputs: the half of the bundle contract that tensors have."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.bundle.manifest import Role
from dragoman.export.lowering import Lowering
from dragoman.export.transformer import TransformerConfig

__all__ = ["Signature", "signature"]

Named = dict[str, tuple[int | str, ...]]
"""Tensors by name, in order; a dimension is a number, or a name when it varies."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph takes and gives."""

    inputs: Named
    outputs: Named


def signature(role: Role, config: TransformerConfig, lowering: Lowering) -> Signature:
    """The signature of one graph."""
    if lowering.name == "fused":
        return _fused_encoder(config) if role == "encoder" else _fused_decoder(config)
    if role == "encoder":
        return Signature(
            inputs={"source_ids": ("batch", "source"), "source_lengths": ("batch",)},
            outputs=_key_values("cross", config, "batch", "source"),
        )
    inputs: Named = {
        "tokens": ("groups", "width"),
        "positions": ("groups", "width"),
        "source_lengths": ("groups",),
        **_key_values("cross", config, "groups", "source"),
        **_key_values("self", config, "past_rows" if lowering.gathers_parents else "rows", "cache"),
    }
    if lowering.gathers_parents:
        inputs["parents"] = ("rows",)
    if lowering.max_candidates is None:
        inputs["candidates"] = (1,)
    best = ("rows", "k" if lowering.max_candidates is None else lowering.max_candidates)
    outputs: Named = {
        "best_tokens": best,
        "best_log_probs": best,
        "best_logits": best,
        **_key_values("present_self", config, "rows", "cache"),
    }
    return Signature(inputs, outputs)


def _fused_encoder(config: TransformerConfig) -> Signature:
    """Sources one after the other, without padding."""
    return Signature(
        inputs={
            "source_ids": ("tokens",),
            "source_positions": ("tokens",),
            "source_starts": ("sources",),
            "source_lengths": ("sources",),
        },
        outputs={f"cross_{layer}": ("tokens", 2 * config.decoder_attention.width) for layer in range(config.decoder_layers)},
    )


def _fused_decoder(config: TransformerConfig) -> Signature:
    """Caches of all layers, in cells of a token's key and value; which cells are a row's past is an input."""
    layers, cell = config.decoder_layers, 2 * config.decoder_attention.width
    best: tuple[int | str, ...] = ("rows", "k")
    return Signature(
        inputs={
            "tokens": ("rows",),
            "positions": ("rows",),
            "cells": ("rows", "room"),
            "self_cache": (layers, "self_cells", cell),
            "source_starts": ("groups",),
            "source_lengths": ("groups",),
            "cross_cache": (layers, "cross_cells", cell),
            "candidates": (1,),
        },
        outputs={"best_tokens": best, "best_log_probs": best, "best_logits": best},
    )


def _key_values(prefix: str, config: TransformerConfig, rows: str, length: str) -> Named:
    """A key and a value for every decoder layer, in the order keys and values leave the model."""
    shape = (rows, config.decoder_attention.heads, length, config.decoder_attention.head_dim)
    return {f"{prefix}_{part}_{layer}": shape for layer in range(config.decoder_layers) for part in ("key", "value")}
