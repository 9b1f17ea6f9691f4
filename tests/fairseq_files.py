"""Small random checkpoints of fairseq, old and new, packed as people pack them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

WIDTH, INNER, HEADS, LAYERS = 16, 24, 2, 2
SOURCE = ["lo@@", "w", "low", "e@@", "r", "l@@", "o@@"]
TARGET = [*SOURCE, "hoch", "tief"]
SETTINGS: dict[str, Any] = {
    "arch": "transformer_iwslt_de_en",
    "task": "translation",
    "source_lang": "en",
    "target_lang": "de",
    "data": "data-bin/wmt.en-de",
    "max_source_positions": 40,
    "max_target_positions": 40,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": True,
    "activation_fn": "relu",
    "layernorm_embedding": False,
    "adaptive_softmax_cutoff": None,
    **{f"{side}_layers": LAYERS for side in ("encoder", "decoder")},
    **{f"{side}_embed_dim": WIDTH for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": INNER for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": HEADS for side in ("encoder", "decoder")},
    **{f"{side}_normalize_before": True for side in ("encoder", "decoder")},
    **{f"{side}_learned_pos": False for side in ("encoder", "decoder")},
}


def weights(source: int = len(SOURCE) + 4, target: int = len(TARGET) + 4, *, shared: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(3)
    made: dict[str, Tensor] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = torch.randn(outputs, inputs) * 0.2, torch.randn(outputs) * 0.1

    def norm(name: str) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = 1 + torch.randn(WIDTH) * 0.1, torch.randn(WIDTH) * 0.1

    for side, rows, attentions in (("encoder", source, ("self",)), ("decoder", target, ("self", "encoder"))):
        made[f"{side}.embed_tokens.weight"] = torch.randn(rows, WIDTH)
        made[f"{side}.version"], made[f"{side}.embed_positions._float_tensor"] = torch.tensor([3.0]), torch.zeros(1)
        norm(f"{side}.layer_norm")
        for layer in range(LAYERS):
            for attention in attentions:
                for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{side}.layers.{layer}.{attention}_attn.{projection}", WIDTH, WIDTH)
                norm(f"{side}.layers.{layer}.{attention}_attn_layer_norm")
            linear(f"{side}.layers.{layer}.fc1", INNER, WIDTH)
            linear(f"{side}.layers.{layer}.fc2", WIDTH, INNER)
            norm(f"{side}.layers.{layer}.final_layer_norm")
    if shared:
        made["encoder.embed_tokens.weight"] = made["decoder.embed_tokens.weight"]
    made["decoder.output_projection.weight"] = made["decoder.embed_tokens.weight"]
    return made


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As fairseq 0.6 wrote them."""
    made = dict(tensors)
    del made["decoder.output_projection.weight"]
    norms = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1}
    for name in tensors:
        owner, _, rest = name.partition("q_proj.")
        if rest:
            parts = [made.pop(f"{owner}{projection}_proj.{rest}") for projection in "qkv"]
            made[f"{owner}in_proj_{rest}"] = torch.cat(parts)
        for norm, at in norms.items():
            if f".{norm}." in name:
                made[name.replace(norm, f"layer_norms.{at}")] = made.pop(name)
        if ".final_layer_norm." in name:
            last = 1 if name.startswith("encoder") else 2
            made[name.replace("final_layer_norm", f"layer_norms.{last}")] = made.pop(name)
    return made


def hydra(settings: dict[str, Any]) -> dict[str, Any]:
    task = {"_name": settings["task"], **{name: settings[name] for name in ("source_lang", "target_lang", "data")}}
    generation = {"beam": 3, "lenpen": 0.6, "max_len_b": 30, "no_early_stop": False}
    return {"model": argparse.Namespace(**settings, _name="transformer"), "task": task, "generation": generation}


def write(
    directory: Path,
    tensors: dict[str, Tensor] | None = None,
    *,
    new: bool = True,
    extra: dict[str, Any] | None = None,
    dictionaries: dict[str, list[str]] | None = None,
    codes: bool = True,
    **changes: Any,
) -> Path:
    """checkpoints/checkpoint_best.pt with data/ beside it, as people pack their models."""
    settings = {**SETTINGS, **changes}
    for name in ("checkpoints", "data"):
        (directory / name).mkdir(parents=True)
    named = {"en": SOURCE, "de": TARGET} if dictionaries is None else dictionaries
    for language, pieces in named.items():
        (directory / f"data/dict.{language}.txt").write_text(
            "".join(f"{piece} {9 - at}\n" for at, piece in enumerate(pieces))
        )
    if codes:
        (directory / "data/bpe.codes").write_text("#version: 0.2\nl o\nlo w</w>\n")
    saved = {"args": None, "cfg": hydra(settings)} if new else {"args": argparse.Namespace(**settings)}
    saved |= {"model": weights() if tensors is None else tensors, "extra_state": {"loss": np.float64(3.5)}, **(extra or {})}
    torch.save(saved, directory / "checkpoints/checkpoint_best.pt", _use_new_zipfile_serialization=new)
    return directory
