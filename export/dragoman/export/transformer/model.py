"""The encoder-decoder Transformer (Vaswani et al. 2017), written to be exported: whole sources, one target token a step."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users write it
from torch import Tensor, nn

from dragoman.export.lowering.protocol import KeyValue, Lowering, Past, Sources
from dragoman.export.transformer.config import TransformerConfig
from dragoman.export.transformer.layers import DecoderLayer, EncoderLayer, Step
from dragoman.export.transformer.linear import Map, make_norm
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = ["Decoder", "Embedding", "Encoder", "OutputProjection", "ShortOutputProjection", "Transformer"]


class Embedding(Map):
    """A vector a token: a row of `weight` (vocabulary, d_model)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width), requires_grad=False)

    def forward(self, tokens: Tensor) -> Tensor:  # (…) -> (…, d_model)
        return F.embedding(tokens, self.weight)


class Stack(nn.Module):
    """What encoder and decoder have in common: positions, the norms around the layers."""

    def __init__(self, config: TransformerConfig, heads: int, max_positions: int, *, both_sides: bool) -> None:
        super().__init__()
        relative = config.positions == "relative"
        layers = config.encoder_layers if both_sides else config.decoder_layers
        tables = (layers if config.relative_per_layer else 1) if relative else 0
        self.embedding_scale = config.embedding_scale
        self.positions = None if relative else PositionTable(config, max_positions)
        self.relative_biases = nn.ModuleList(RelativeBias(config, heads, both_sides) for _ in range(tables))
        norm = (config.norm, config.d_model, config.norm_epsilon)
        self.embedding_norm = make_norm(*norm) if config.embedding_norm else None
        self.final_norm = make_norm(*norm) if config.final_norm else None

    def embed(self, embedding: Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
        """norm(scale · E[token] + PE[position]); tokens (a, b) -> (a, b, d_model), positions broadcast."""
        x = embedding(tokens)
        if self.embedding_scale != 1.0:
            x = x * self.embedding_scale
        if self.positions is not None:
            x = x + self.positions(positions)
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def biases(self, queries: Tensor, keys: Tensor, layers: int) -> list[Tensor | None]:
        """What each layer adds to its attention scores."""
        tables = [bias(queries, keys) for bias in self.relative_biases]
        return tables if len(tables) == layers else [tables[0] if tables else None] * layers

    def finish(self, x: Tensor) -> Tensor:
        """The norm after the last layer, where the model has one."""
        return x if self.final_norm is None else self.final_norm(x)


class Encoder(Stack):
    """Source tokens to hidden states."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.encoder_heads, config.max_source_positions, both_sides=True)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self, embedding: Embedding, tokens: Tensor, places: Tensor, lengths: Tensor | Sources, lowering: Lowering
    ) -> Tensor:
        """tokens (batch, source), places (source,), lengths (batch,) -> (batch, source, d_model).

        Without padding: tokens and places (tokens,), with the sources' starts and lengths, -> (tokens, d_model).
        """
        x = self.embed(embedding, tokens, places)
        for layer, bias in zip(self.layers, self.biases(places[None], places, len(self.layers)), strict=True):
            x = layer(x, lengths, bias, lowering)
        return self.finish(x)


class Decoder(Stack):
    """One new target token a row to hidden states."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.decoder_heads, config.max_target_positions, both_sides=False)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def forward(self, x: Tensor, memories: Sequence[Past], pasts: Sequence[Past], step: Step) -> tuple[Tensor, list[Past]]:
        """Embedded tokens x (groups, width, d_model) to hidden states and the caches with this step in them."""
        biases: list[Tensor | None] = [None] * len(self.layers)
        if self.relative_biases:
            places = torch.arange(cast("KeyValue", pasts[0]).key.shape[2])  # (cache,)
            biases = self.biases(step.positions.reshape(-1, 1).long(), places, len(self.layers))  # queries (rows, 1)
        presents = []
        for layer, past, memory, bias in zip(self.layers, pasts, memories, biases, strict=True):
            x, present = layer(x, past, memory, step._replace(bias=bias))
            presents.append(present)
        return self.finish(x), presents


class OutputProjection(Map):
    """logits = x Eᵀ · scale + b, where E is the target embedding itself when the model ties them."""

    def __init__(self, config: TransformerConfig, target_embedding: Embedding) -> None:
        super().__init__()
        rows = (config.target_vocabulary, config.d_model)
        self.weight = target_embedding.weight if config.tied_output else nn.Parameter(torch.empty(rows), requires_grad=False)
        if config.output_bias:
            self.bias = nn.Parameter(torch.empty(config.target_vocabulary), requires_grad=False)
        else:  # zeros cost nothing: they are the C of the one Gemm
            self.register_buffer("bias", torch.zeros(config.target_vocabulary, device="cpu"), persistent=False)
        self.scale = config.output_scale

    def forward(self, x: Tensor) -> Tensor:  # (rows, d_model) -> (rows, vocabulary)
        x = x.to(self.weight.dtype)
        return F.linear(x if self.scale == 1.0 else x * self.scale, self.weight, self.bias)

    def tokens(self, places: Tensor) -> Tensor:
        """The tokens whose logits lie at these places."""
        return places


class ShortOutputProjection(OutputProjection):
    """The same for the tokens of a shortlist only: fewer rows of E, and a table of the tokens that they are."""

    def __init__(self, whole: OutputProjection, shortlist: Tensor) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(whole.weight[shortlist], requires_grad=False)
        self.register_buffer("bias", cast(Tensor, whole.bias)[shortlist], persistent=False)
        self.register_buffer("shortlist", shortlist, persistent=False)
        self.scale = whole.scale

    def tokens(self, places: Tensor) -> Tensor:
        return cast(Tensor, self.shortlist)[places]


class Transformer(nn.Module):
    """All weights once; how they become operators is the lowering's choice at every call."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(config.source_vocabulary, config.d_model)
        self.target_embedding = (
            self.source_embedding if config.shared_embeddings else Embedding(config.target_vocabulary, config.d_model)
        )
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = OutputProjection(config, self.target_embedding)

    def shortened(self, shortlist: Sequence[int]) -> Transformer:
        """The model with the same weights that can say these tokens only."""
        model = copy.copy(self)
        model._modules = {**self._modules, "output": ShortOutputProjection(self.output, torch.tensor(shortlist))}
        return model

    @property
    def choices(self) -> int:
        """How many tokens it can say."""
        return len(self.output.weight)

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states and caches."""
        return self.target_embedding.weight.dtype

    def encode(self, source_ids: Tensor, source_lengths: Tensor, lowering: Lowering) -> list[KeyValue]:
        """Sources (batch, source) to the keys and values every decoder layer will look at."""
        places = torch.arange(source_ids.shape[1])  # (source,)
        encoded = self.encoder(self.source_embedding, source_ids, places, source_lengths, lowering)
        layers = cast("Iterable[DecoderLayer]", self.decoder.layers)
        memories = [layer.cross_attention.memory(encoded) for layer in layers]
        return [KeyValue(key.to(self.dtype), value.to(self.dtype)) for key, value in memories]

    def encode_flat(self, source_ids: Tensor, places: Tensor, sources: Sources, lowering: Lowering) -> list[Tensor]:
        """Sources one after the other, (tokens,), to keys and values side by side, (tokens, 2 · width) for every layer."""
        encoded = self.encoder(self.source_embedding, source_ids, places, sources, lowering)
        return [layer.cross_attention.key_value(encoded) for layer in cast("Iterable[DecoderLayer]", self.decoder.layers)]

    def step(  # noqa: PLR0917 - these are what a step is made of
        self,
        tokens: Tensor,
        positions: Tensor,
        source_lengths: Tensor,
        memories: Sequence[Past],
        pasts: Sequence[Past],
        lowering: Lowering,
    ) -> tuple[Tensor, list[Past]]:
        """One token a row, (groups, width) or (rows,), to logits (rows, choices) and the caches with this step."""
        x = self.decoder.embed(self.target_embedding, tokens, positions)
        hidden, presents = self.decoder(x, memories, pasts, Step(positions, source_lengths, None, lowering))
        return self.output(hidden.flatten(0, -2)), presents
