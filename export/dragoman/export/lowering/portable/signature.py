"""Names and shapes of the portable graphs' inputs and outputs."""

from __future__ import annotations

from dragoman.export.lowering.signature import Named, Signature
from dragoman.export.transformer import TransformerConfig

__all__ = ["padded_encoder", "padded_forced", "step_decoder"]


def padded_encoder(config: TransformerConfig) -> Signature:
    """Padded sources to keys and values."""
    return Signature(
        inputs={"source_ids": ("batch", "source"), "source_lengths": ("batch",)},
        outputs=_key_values("cross", config, "batch", "source"),
    )


def step_decoder(config: TransformerConfig, max_candidates: int) -> Signature:
    """One token for each row, with caches of keys and values; row r continues row parents[r] of the past."""
    best, scored = ("rows", max_candidates), ("rows", "scored_tokens")
    return Signature(
        inputs={
            "tokens": ("groups", "width"),
            "positions": ("groups", "width"),
            "source_lengths": ("groups",),
            **_key_values("cross", config, "groups", "source"),
            **_key_values("self", config, "past_rows", "cache"),
            "parents": ("rows",),
            "scored_tokens": scored,
        },
        outputs={
            "best_tokens": best,
            "best_log_probs": best,
            "best_logits": best,
            "scored_log_probs": scored,
            "scored_logits": scored,
            **_key_values("present_self", config, "rows", "cache"),
        },
    )


def padded_forced(config: TransformerConfig, max_candidates: int) -> Signature:
    """Padded targets; the results are those of a piece of each."""
    piece = ("batch", "piece")
    best = (*piece, max_candidates)
    return Signature(
        inputs={
            "tokens": ("batch", "target"),
            "targets": piece,
            "target_positions": ("piece",),
            "source_lengths": ("batch",),
            **_key_values("cross", config, "batch", "source"),
        },
        outputs={
            "log_probs": piece,
            "alignment": (*piece, "source"),
            "best_tokens": best,
            "best_log_probs": best,
        },
    )


def _key_values(prefix: str, config: TransformerConfig, rows: str, length: str) -> Named:
    """A key and a value for every decoder layer, in the order keys and values leave the model."""
    shape = (rows, config.decoder_attention.heads, length, config.decoder_attention.head_dim)
    return {f"{prefix}_{part}_{layer}": shape for layer in range(config.decoder_layers) for part in ("key", "value")}
