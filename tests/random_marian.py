"""Marian checkpoints with random weights, written by hand in the Hugging Face layout: any shape, no training, no network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

REFERENCE_MODEL = Path(__file__).resolve().parents[1] / "models" / "tatoeba-en-de"

TINY: dict[str, Any] = {
    "architectures": ["MarianMTModel"],
    "model_type": "marian",
    "activation_function": "swish",
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "vocab_size": 53,
    "max_position_embeddings": 32,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "pad_token_id": 52,
    "eos_token_id": 0,
    "decoder_start_token_id": 52,
    "is_encoder_decoder": True,
}


def marian_config(**overrides: object) -> dict[str, Any]:
    """TINY with `overrides`; the last token of the vocabulary pads and starts."""
    config = {**TINY, **overrides}
    config.setdefault("decoder_vocab_size", config["vocab_size"])
    config["pad_token_id"] = config["decoder_start_token_id"] = config["decoder_vocab_size"] - 1
    return config


def marian_weights(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random weights under Hugging Face's names, large enough that every layer matters to the answer."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.2)

    width = config["d_model"]
    weights = {"final_logits_bias": random(1, config["decoder_vocab_size"])[:, :]}
    if config["share_encoder_decoder_embeddings"]:
        weights["model.shared.weight"] = random(config["vocab_size"], width)
    else:
        weights["model.encoder.embed_tokens.weight"] = random(config["vocab_size"], width)
        weights["model.decoder.embed_tokens.weight"] = random(config["decoder_vocab_size"], width)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = random(config["decoder_vocab_size"], width)
        for side in ("encoder", "decoder") if config["share_encoder_decoder_embeddings"] else ():
            weights[f"model.{side}.embed_tokens.weight"] = weights["model.shared.weight"].clone()
    for side in ("encoder", "decoder"):
        attentions = ("self_attn",) if side == "encoder" else ("self_attn", "encoder_attn")
        for layer in range(config[f"{side}_layers"]):
            prefix = f"model.{side}.layers.{layer}"
            shapes = {f"{name}.{part}_proj": (width, width) for name in attentions for part in ("q", "k", "v", "out")}
            hidden = config[f"{side}_ffn_dim"]
            shapes |= {"fc1": (hidden, width), "fc2": (width, hidden)}
            for name, shape in shapes.items():
                weights[f"{prefix}.{name}.weight"] = random(*shape)
                weights[f"{prefix}.{name}.bias"] = random(shape[0])
            for name in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
                weights[f"{prefix}.{name}.weight"] = 1 + random(width)
                weights[f"{prefix}.{name}.bias"] = random(width)
    return weights


def write_marian(directory: Path, *, seed: int = 0, weights: dict[str, Tensor] | None = None, **overrides: object) -> Path:
    """A whole checkpoint in `directory`: settings, weights, vocabularies, and the reference model's sentencepiece files."""
    directory.mkdir(parents=True, exist_ok=True)
    config = marian_config(**overrides)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(marian_weights(config, seed) if weights is None else weights, directory / "model.safetensors")
    (directory / "vocab.json").write_text(json.dumps(vocabulary(config["vocab_size"])))
    if not config["share_encoder_decoder_embeddings"]:
        (directory / "target_vocab.json").write_text(json.dumps(vocabulary(config["decoder_vocab_size"])))
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(REFERENCE_MODEL / name, directory / name)
    return directory


def vocabulary(size: int) -> dict[str, int]:
    """Pieces that are only names, with the special ones where Marian has them."""
    return {"</s>": 0, "<unk>": 1, **{f"▁{index}": index for index in range(2, size - 1)}, "<pad>": size - 1}
