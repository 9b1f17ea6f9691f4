"""Small random checkpoints of OpenNMT-py, and torch's own layers with the same weights."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, INNER, LAYERS = 16, 24, 2
SPECIALS = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE, TARGET = [*SPECIALS, "ein", "zwei", "drei"], [*SPECIALS, "one", "two", "three", "four"]
OPTIONS: dict[str, Any] = {
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "layers": LAYERS,
    "heads": 2,
    "transformer_ff": INNER,
    "position_encoding": True,
    "position_encoding_type": "SinusoidalInterleaved",
    "max_relative_positions": 0,
    "self_attn_type": "scaled-dot",
    "pos_ffn_activation_fn": "relu",
}


def paper_positions(length: int) -> Tensor:
    table = [[(math.sin, math.cos)[i % 2](p / 10000 ** ((i - i % 2) / WIDTH)) for i in range(WIDTH)] for p in range(length)]
    return torch.tensor(table)


class Layers(nn.Module):
    """torch's layers with ε 1e-6, which OpenNMT-py's are the same as."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(11)
        settings: dict[str, Any] = {"dropout": 0.0, "layer_norm_eps": 1e-6, "batch_first": True, "norm_first": True}
        norm = nn.LayerNorm(WIDTH, 1e-6)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, INNER, **settings), LAYERS, norm, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(WIDTH, 2, INNER, **settings), LAYERS, nn.LayerNorm(WIDTH, 1e-6)
        )
        self.source, self.target = nn.Embedding(len(SOURCE), WIDTH), nn.Embedding(len(TARGET), WIDTH)
        self.generator = nn.Linear(WIDTH, len(TARGET))
        for name, parameter in self.named_parameters():
            nn.init.normal_(parameter, 1.0 if "norm" in name and "weight" in name else 0.0, 0.3)
            if not bias and "attn" in name and "bias" in name:
                nn.init.zeros_(parameter)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        sides = [
            embedding(ids) * WIDTH**0.5 + paper_positions(ids.shape[1])
            for embedding, ids in ((self.source, source), (self.target, target))
        ]
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.generator(self.decoder(sides[1], self.encoder(sides[0]), tgt_mask=causal))


RENAMED = (
    ("encoder.layers.", "encoder.transformer."),
    ("decoder.layers.", "decoder.transformer_layers."),
    ("multihead_attn", "context_attn"),
    ("linear1", "feed_forward.w_1"),
    ("linear2", "feed_forward.w_2"),
    ("out_proj", "final_linear"),
    ("coder.norm", "coder.layer_norm"),
)
NORMS = {
    "encoder": ("layer_norm", "feed_forward.layer_norm"),
    "decoder": ("layer_norm_1", "layer_norm_2", "feed_forward.layer_norm"),
}


def in_their_names(layers: Layers, bias: bool, positions: bool) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for name, tensor in layers.state_dict().items():
        side = name.split(".")[0]
        if side not in NORMS or (not bias and "attn" in name and "bias" in name):
            continue
        theirs = name
        for at, norm in enumerate(NORMS[side], start=1):
            theirs = theirs.replace(f".norm{at}.", f".{norm}.")
        for old, new in RENAMED:
            theirs = theirs.replace(old, new)
        if "in_proj_" not in theirs:
            made[theirs] = tensor
            continue
        for projection, part in zip(("query", "keys", "values"), tensor.chunk(3), strict=True):
            made[theirs.replace("in_proj_", f"linear_{projection}.")] = part.clone()
    for side, embedding in (("encoder", layers.source), ("decoder", layers.target)):
        made[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = embedding.weight.data
        if positions:
            made[f"{side}.embeddings.make_embedding.pe.pe"] = paper_positions(50)[:, None]
    return made


def write(
    path: Path,
    *,
    bias: bool = True,
    positions: bool = True,
    old: bool = False,
    vocab: Any = None,
    extra: Any = None,
    **options: Any,
) -> Path:
    layers = Layers(bias)
    prefix = "0." if old else ""
    saved = {
        "model": in_their_names(layers, bias, positions),
        "generator": {f"{prefix}{name}": tensor for name, tensor in layers.generator.state_dict().items()},
        "opt": argparse.Namespace(**{**OPTIONS, **options}),
        "vocab": {"src": SOURCE, "tgt": TARGET, "data_task": "seq2seq"} if vocab is None else vocab,
        "optim": extra,
    }
    torch.save(saved, path)
    return path
