"""Small random models around torch.nn.Transformer, saved and described as users do it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.export.checkpoint.formats.torch_transformer.positions import interleaved_sinusoids

WIDTH, LENGTH = 16, 24
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
SOURCE, TARGET = [*SPECIALS, *"abcdefg "], [*SPECIALS, *"hijklmnopq "]
IDS = [1, 4, 7, 5, 9, 2]


class Custom(nn.Module):
    """A model as people write them: their own embeddings around torch's Transformer."""

    def __init__(self, *, shared: bool = False, learned: bool = False, output_bias: bool = True, **settings: Any) -> None:
        super().__init__()
        self.source = nn.Embedding(len(SOURCE), WIDTH)
        self.target = self.source if shared else nn.Embedding(len(TARGET), WIDTH)
        words = len(SOURCE if shared else TARGET)
        if learned:
            self.places = nn.Embedding(LENGTH + 2, WIDTH)
        else:
            self.register_buffer("pe", interleaved_sinusoids(LENGTH, WIDTH)[:, None])
        counts: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 1, "dim_feedforward": 24, "dropout": 0.0}
        self.net = nn.Transformer(WIDTH, 2, batch_first=True, **counts, **settings)
        self.head = nn.Linear(WIDTH, words, bias=output_bias)
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0.0, 0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.net(self._embed(self.source, source), self._embed(self.target, target), tgt_mask=causal))

    def _embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        places = self.places.weight[2:] if hasattr(self, "places") else self.pe[:, 0]
        return embedding(ids) * WIDTH**0.5 + places[: ids.shape[1]]


DESCRIPTION: dict[str, Any] = {
    "format": "torch-transformer",
    "weights": "model.pt",
    "prefix": "net",
    "heads": 2,
    "source_embedding": "source.weight",
    "target_embedding": "target.weight",
    "embedding_scale": "sqrt",
    "positions": {"weight": "pe"},
    "output": {"weight": "head.weight", "bias": "head.bias"},
    "tokenizer": {"kind": "characters", "vocabulary": "source.json", "target_vocabulary": "target.json"},
    "tokens": {
        "pad": "<pad>",
        "start": "<s>",
        "end": "</s>",
        "unknown": "<unk>",
        "source_prefix": "<s>",
        "source_suffix": "</s>",
    },
}


def write(directory: Path, model: Custom, **changes: Any) -> Path:
    directory.mkdir(exist_ok=True)
    for name, pieces in (("source.json", SOURCE), ("target.json", TARGET)):
        (directory / name).write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}))
    description = {name: value for name, value in {**DESCRIPTION, **changes}.items() if value is not None}
    (directory / "dragoman.json").write_text(json.dumps(description))
    torch.save(model.state_dict(), directory / "model.pt")
    return directory


def made(**settings: Any) -> Custom:
    torch.manual_seed(7)
    return Custom(**settings).eval()
