"""A described state dict run by torch's own `nn.TransformerEncoder` and `nn.TransformerDecoder`: the reference of its
export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.bundle.manifest import SpecialTokens
from dragoman.errors import ExportError
from dragoman.export.checkpoint.formats.description import Description, read_description
from dragoman.export.checkpoint.formats.torch_transformer.format import read_weights, with_positions
from dragoman.export.checkpoint.formats.torch_transformer.names import TorchNames, read_names
from dragoman.export.verification.answers import FloatArray, IntArray, Tokens
from dragoman.export.verification.decoding import TopTokens, decode
from dragoman.export.verification.eager import threads_for
from dragoman.search import DecodingOptions

__all__ = ["TorchTransformerModel"]


class TorchTransformerModel:
    """Layers, masks and attention are torch's; embeddings and positions are what the description says."""

    def __init__(self, source: Path, tokens: SpecialTokens) -> None:
        description, directory = read_description(source)
        names = read_names(description)
        tensors = with_positions(
            dict(read_weights(description, directory, source)[0]), description.section("positions", required=False), names
        )
        self.name = f"torch {torch.__version__.split('+')[0]} nn.Transformer"
        self._tokens = tokens
        self._model = _Model(description, tensors, names).eval()

    def generate(self, sources: Sequence[Sequence[int]], options: DecodingOptions) -> list[Tokens]:
        with threads_for(self._model.width):
            answers = decode(_Stepper(self._model), sources, options, self._tokens, self._model.vocabulary)
        return [answer.tokens for answer in answers]

    @torch.inference_mode()
    def log_probs(
        self, source: Sequence[int], target: Sequence[int], language: LanguageTokens = NO_LANGUAGE_TOKENS
    ) -> FloatArray:
        memory, padding = self._model.encode([source])
        start = self._tokens.decoder_start if language.decoder_start is None else language.decoder_start
        tokens = torch.tensor([[start, *target[:-1]]])
        result: FloatArray = self._model.logits(tokens, memory, padding)[0].log_softmax(-1).numpy()
        return result


class _Model(nn.Module):
    def __init__(self, description: Description, tensors: Mapping[str, Tensor], names: TorchNames) -> None:
        super().__init__()
        heads = description.number("heads")
        self._scale = float(description.raw("embedding_scale", 1.0)) if description.raw("embedding_scale") != "sqrt" else 0.0
        self._source, self._target = (tensors[name].float() for name in (names.source_embedding, names.target_embedding))
        self._scale = self._scale or self._source.shape[1] ** 0.5
        self._places = [tensors[name].float() for name in (names.source_positions, names.target_positions)]
        bias = None if names.output_bias is None else tensors[names.output_bias].float()
        self._output, self._output_bias = tensors[names.output_weight].float(), bias
        self.vocabulary, self.width = self._output.shape
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**_layer(description, tensors, names.encoder, heads)),
            **_stack(description, tensors, names.encoder),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(
                **_layer(description, tensors, names.decoder, description.number("decoder_heads", heads))
            ),
            **_stack(description, tensors, names.decoder),
        )
        for stack, prefix in ((self.encoder, names.encoder), (self.decoder, names.decoder)):
            inside = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            inside = {name: tensor for name, tensor in inside.items() if f"{prefix}{name}" not in names.ignored}
            try:
                stack.load_state_dict(inside)
            except RuntimeError as error:
                raise ExportError(f"the export can't be checked: torch's layers do not take the weights: {error}") from error

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Hidden states (batch, source, d_model), and what is padding (batch, source)."""
        lengths = torch.tensor([len(source) for source in sources])
        ids = torch.zeros(len(sources), int(lengths.max()), dtype=torch.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
        padding = torch.arange(ids.shape[1]) >= lengths[:, None]
        x = self._source[ids] * self._scale + self._places[0][: ids.shape[1]]
        return self.encoder(x, src_key_padding_mask=padding), padding

    def logits(self, tokens: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """tokens (rows, target) -> (rows, target, vocabulary)."""
        length = tokens.shape[1]
        x = self._target[tokens] * self._scale + self._places[1][:length]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.decoder(x, memory, tgt_mask=future, memory_key_padding_mask=padding)
        return nn.functional.linear(x, self._output, self._output_bias)


def _layer(description: Description, tensors: Mapping[str, Tensor], prefix: str, heads: int) -> dict[str, Any]:
    inner = tensors[f"{prefix}layers.0.linear1.weight"]  # (dim_feedforward, d_model)
    return {
        "d_model": inner.shape[1],
        "nhead": heads,
        "dim_feedforward": inner.shape[0],
        "dropout": 0.0,
        "activation": description.text("activation", "relu"),
        "layer_norm_eps": description.real("layer_norm_epsilon", 1e-5),
        "batch_first": True,
        "norm_first": description.flag("norm_first", False),
        "bias": f"{prefix}layers.0.linear1.bias" in tensors,
    }


def _stack(description: Description, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Any]:
    norm = None
    if (weight := tensors.get(f"{prefix}norm.weight")) is not None:
        epsilon = description.real("layer_norm_epsilon", 1e-5)
        norm = nn.LayerNorm(len(weight), epsilon, bias=f"{prefix}norm.bias" in tensors)
    layers = {name.split(".")[0] for key in tensors if (name := key.removeprefix(f"{prefix}layers.")) != key}
    return {"num_layers": len(layers), "norm": norm}


class _Stepper:
    """Every step decodes the whole target so far anew: slow, and without a cache that could be wrong."""

    def __init__(self, model: _Model) -> None:
        self._model = model

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], shortlist: int = 0) -> None:  # noqa: ARG002 - there are none
        self._memory, self._padding = self._model.encode(sources)
        self._said = torch.zeros(len(sources), 0, dtype=torch.int64)

    @torch.inference_mode()
    def step(self, tokens: IntArray, positions: IntArray, groups: IntArray, parents: IntArray, candidates: int) -> TopTokens:
        width, kept = tokens.shape[1], torch.from_numpy(groups)
        if bool((positions == 0).all()):
            rows = kept.repeat_interleave(width)
        else:
            rows = (kept[:, None] * width + torch.from_numpy(parents)).flatten()
        self._memory, self._padding = self._memory[kept], self._padding[kept]
        self._said = torch.cat([self._said[rows], torch.from_numpy(np.ascontiguousarray(tokens)).reshape(-1, 1)], dim=1)
        memory, padding = (part.repeat_interleave(width, 0) for part in (self._memory, self._padding))
        logits = self._model.logits(self._said, memory, padding)[:, -1]
        best = logits.log_softmax(-1).topk(candidates, dim=-1)
        return TopTokens(best.indices.numpy(), best.values.numpy(), logits.gather(-1, best.indices).numpy())
