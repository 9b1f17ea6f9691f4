"""The reference model in OPUS-MT's size: its output is nearly the same, and every product is as large as OPUS-MT's.

Random weights are good enough for fixed lengths, but they never generate the end token. Here the trained weights lie
in a larger model with zeros around them: hidden unit i becomes unit 2i, for that is where a Transformer of twice the width
has the same sinusoidal positions; heads, feed-forward layers and the vocabulary are padded; the layers that are missing
pass on what they get. The norms then see as many zeros as numbers, which their gains make up for, all but exactly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.random_checkpoint import OPUS_MT_32K, REFERENCE, ModelSize, configuration, generation, write_tokenizer

if TYPE_CHECKING:
    import torch

__all__ = ["ENLARGED", "write_enlarged_checkpoint"]

ENLARGED = ModelSize("enlarged-32k", OPUS_MT_32K.vocabulary)
_NEVER = -100.0  # the logit of a word that the vocabulary was padded with
_HALF = 0.5**0.5  # what zeros beside as many numbers do to their deviation


@dataclass(frozen=True, slots=True)
class _Padding:
    """Where the small model's numbers go."""

    size: ModelSize
    width: int
    heads: int

    @property
    def embedding_scale(self) -> float:
        """A wider model scales its embeddings up more."""
        return float((self.width / self.size.d_model) ** 0.5)

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, width) -> (…, d_model), unit i at 2i."""
        wide = rows.new_zeros(*rows.shape[:-1], self.size.d_model)
        wide[..., : 2 * self.width : 2] = rows
        return wide

    def in_heads(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, width) -> (…, d_model), every head's numbers at its beginning."""
        wide = rows.new_zeros(*rows.shape[:-1], self.heads, self.size.d_model // self.heads)
        wide[..., : self.width // self.heads] = rows.view(*rows.shape[:-1], self.heads, -1)
        return wide.flatten(-2)

    def feed_forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(…, feed_forward) -> wider."""
        return _padded(rows, self.size.feed_forward)


def write_enlarged_checkpoint(directory: Path, size: ModelSize = ENLARGED) -> Path:
    """`directory` with the checkpoint in it; an existing one is kept."""
    if (directory / "vocab.json").is_file():
        return directory
    from safetensors.torch import load_file, save_file

    raw = json.loads((REFERENCE / "config.json").read_text(encoding="utf-8"))
    weights = load_file(REFERENCE / "model.safetensors")
    padding = _Padding(size, raw["d_model"], size.heads)
    enlarged: dict[str, torch.Tensor] = {**_vocabulary(weights, padding)}
    for stack, layers, had in (
        ("encoder", size.encoder_layers, raw["encoder_layers"]),
        ("decoder", size.decoder_layers, raw["decoder_layers"]),
    ):
        for layer in range(layers):
            prefix = f"model.{stack}.layers.{layer}."
            of = {
                name: value
                for name, value in weights.items()
                if name.startswith(f"model.{stack}.layers.{min(layer, had - 1)}.")
            }
            for name, value in of.items():
                part = name.split(".", 4)[4]
                enlarged[prefix + part] = (
                    _passing(part, value, of, padding) if layer >= had else _enlarged(part, value, padding)
                )
        first = f"model.{stack}.layers.0.self_attn_layer_norm.weight"
        enlarged[first] = enlarged[first] / _HALF * _first_deviation(weights, raw["d_model"])
    for kind in ("weight", "bias"):  # the projection is the embedding, which was scaled down
        enlarged[f"model.decoder.layers.{size.decoder_layers - 1}.final_layer_norm.{kind}"] /= padding.embedding_scale
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in enlarged.items()}, directory / "model.safetensors", {"format": "pt"}
    )
    configuration(size).save_pretrained(directory)
    generation(size, max_length=128).save_pretrained(directory)
    write_tokenizer(size.vocabulary, directory)
    return directory


def _vocabulary(weights: dict[str, torch.Tensor], padding: _Padding) -> dict[str, torch.Tensor]:
    """Embeddings, less what the wider model scales them up more; pad stays the last word."""
    small, bias = weights["model.shared.weight"], weights["final_logits_bias"]
    scale = padding.embedding_scale
    rows = small.new_zeros(padding.size.vocabulary, padding.size.d_model)
    rows[: len(small) - 1], rows[-1] = padding.hidden(small[:-1] * scale), padding.hidden(small[-1] * scale)
    logits = bias.new_full((1, padding.size.vocabulary), _NEVER)
    logits[0, : len(small) - 1], logits[0, -1] = bias[0, :-1], bias[0, -1]
    return {"model.shared.weight": rows, "final_logits_bias": logits}


def _enlarged(part: str, value: torch.Tensor, padding: _Padding) -> torch.Tensor:
    """A weight of a layer that the small model has."""
    module, kind = part.rsplit(".", 1)
    if module.endswith("layer_norm"):
        return padding.hidden(value * _HALF if kind == "weight" else value)
    if module.endswith(("q_proj", "k_proj", "v_proj")):
        # Queries make up for the larger root of the head's size that they are divided by.
        value = value * 2**0.5 if module.endswith("q_proj") else value
        return padding.in_heads(value) if kind == "bias" else padding.hidden(padding.in_heads(value.T).T)
    if module.endswith("out_proj"):
        return padding.hidden(value) if kind == "bias" else padding.in_heads(padding.hidden(value.T).T)
    if module == "fc1":
        return padding.feed_forward(value) if kind == "bias" else padding.hidden(padding.feed_forward(value.T).T)
    return padding.hidden(value) if kind == "bias" else padding.feed_forward(padding.hidden(value.T).T)


def _passing(part: str, value: torch.Tensor, of: dict[str, torch.Tensor], padding: _Padding) -> torch.Tensor:
    """A weight of a layer that adds nothing, and whose norms give back what the last one gave."""
    import torch

    shape = _enlarged(part, value, padding)
    if "layer_norm" not in part:
        return torch.zeros_like(shape)
    gain, bias = (
        next(tensor for name, tensor in of.items() if name.endswith(f"final_layer_norm.{kind}"))
        for kind in ("weight", "bias")
    )
    mean, deviation = bias.mean(), (gain.square().mean() + bias.var(correction=0)).sqrt()
    kept = deviation * _HALF if part.endswith("weight") else mean / 2
    return padding.hidden(kept.expand(padding.width))


def _first_deviation(weights: dict[str, torch.Tensor], width: int) -> torch.Tensor:
    """What the first norm divides by beside what it divided by in the small model: the other units hold positions there."""
    embedded = weights["model.shared.weight"] * width**0.5
    variance = embedded.var(dim=1).mean() + 0.5  # sines and cosines: half on average
    deviation: torch.Tensor = ((variance + 0.5) / (2 * variance)).sqrt()
    return deviation


def _padded(rows: torch.Tensor, length: int) -> torch.Tensor:
    wide = rows.new_zeros(*rows.shape[:-1], length)
    wide[..., : rows.shape[-1]] = rows
    return wide
