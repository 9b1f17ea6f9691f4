"""Rules that map a weight's name in the Transformer to a trainer's name: patterns and replacements, in order."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["BART", "Rules", "renamed"]

Rules = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]


def renamed(ours: str, rules: Rules) -> str:
    """The name after every rule."""
    for pattern, replacement in rules:
        ours = re.sub(pattern, replacement, ours)
    return ours


BART: Rules = (
    (r"\.self_attention_norm\.", ".self_attn_layer_norm."),
    (r"\.cross_attention_norm\.", ".encoder_attn_layer_norm."),
    (r"\.feed_forward_norm\.", ".final_layer_norm."),
    (r"\.self_attention\.", ".self_attn."),
    (r"\.cross_attention\.", ".encoder_attn."),
    (r"\.feed_forward\.inner\.", ".fc1."),
    (r"\.feed_forward\.outer\.", ".fc2."),
    (r"\.(query|key|value)\.", lambda match: f".{match[1][0]}_proj."),
    (r"\.output\.", ".out_proj."),
    (r"\.positions\.", ".embed_positions."),
    (r"coder\.embedding_norm\.", "coder.layernorm_embedding."),
    (r"coder\.final_norm\.", "coder.layer_norm."),
)
"""Of fairseq, and of the Hugging Face models that came from it."""
