"""Names and shapes of a graph's inputs and outputs: the half of the bundle contract that tensors have."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.export.transformer import TransformerConfig

__all__ = ["Named", "Signature", "key_values", "padded_encoder", "step_decoder"]

Named = dict[str, tuple[int | str, ...]]
"""Tensors by name, in order; a dimension is a number, or a name when it varies."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph takes and gives."""

    inputs: Named
    outputs: Named


def padded_encoder(config: TransformerConfig) -> Signature:
    """Padded sources to keys and values."""
    return Signature(
        inputs={"source_ids": ("batch", "source"), "source_lengths": ("batch",)},
        outputs=key_values("cross", config, "batch", "source"),
    )


def step_decoder(config: TransformerConfig, *, gathers_parents: bool, max_candidates: int | None) -> Signature:
    """One token for each row, with caches of keys and values."""
    inputs: Named = {
        "tokens": ("groups", "width"),
        "positions": ("groups", "width"),
        "source_lengths": ("groups",),
        **key_values("cross", config, "groups", "source"),
        **key_values("self", config, "past_rows" if gathers_parents else "rows", "cache"),
    }
    if gathers_parents:
        inputs["parents"] = ("rows",)
    if max_candidates is None:
        inputs["candidates"] = (1,)
    best = ("rows", "k" if max_candidates is None else max_candidates)
    outputs: Named = {
        "best_tokens": best,
        "best_log_probs": best,
        "best_logits": best,
        **key_values("present_self", config, "rows", "cache"),
    }
    return Signature(inputs, outputs)


def key_values(prefix: str, config: TransformerConfig, rows: str, length: str) -> Named:
    """A key and a value for every decoder layer, in the order keys and values leave the model."""
    shape = (rows, config.decoder_attention.heads, length, config.decoder_attention.head_dim)
    return {f"{prefix}_{part}_{layer}": shape for layer in range(config.decoder_layers) for part in ("key", "value")}
