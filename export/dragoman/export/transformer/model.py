"""The encoder-decoder Transformer (Vaswani et al. 2017), written to be exported: whole sources, one target token a step."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users write it
from torch import Tensor, nn

from dragoman.export.transformer.attention import TorchOperators
from dragoman.export.transformer.config import TransformerConfig
from dragoman.export.transformer.layers import DecoderLayer, EncoderLayer, Residual, Step
from dragoman.export.transformer.linear import Map, make_norm
from dragoman.export.transformer.operators import Extents, KeyValue, Operators, Past
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = [
    "Decoder",
    "Embedding",
    "Encoder",
    "ListedOutputProjection",
    "OutputProjection",
    "ShortOutputProjection",
    "Transformer",
]


class Embedding(Map):
    """A vector a token: a row of `weight` (vocabulary, d_model)."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width), requires_grad=False)

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors."""
        return self.weight.dtype

    def forward(self, tokens: Tensor) -> Tensor:  # (…) -> (…, d_model)
        return F.embedding(tokens, self.weight)


class Stack(nn.Module):
    """What encoder and decoder have in common: positions, the norms around the layers."""

    def __init__(self, config: TransformerConfig, heads: int, max_positions: int, *, both_sides: bool) -> None:
        super().__init__()
        relative = config.positions == "relative"
        layers = config.encoder_layers if both_sides else config.decoder_layers
        tables = (layers if config.relative_per_layer else 1) if relative else 0
        self.embedding_scale, self.pre_norm = config.embedding_scale, config.pre_norm
        self.positions = None if relative else PositionTable(config, max_positions)
        self.relative_biases = nn.ModuleList(RelativeBias(config, heads, both_sides) for _ in range(tables))
        norm = (config.norm, config.d_model, config.norm_epsilon)
        self.embedding_norm = make_norm(*norm) if config.embedding_norm else None
        self.final_norm = make_norm(*norm) if config.final_norm else None

    def tables(self) -> Iterable[RelativeBias]:
        """The tables of relative positions: none, one, or one for each layer."""
        return cast("Iterable[RelativeBias]", self.relative_biases)

    def embed(self, embedding: Embedding, tokens: Tensor, positions: Tensor, operators: Operators) -> Residual:
        """norm(scale · E[token] + PE[position]); tokens (a, b), positions broadcast: the residual stream begins."""
        x = operators.embed(embedding, tokens, self.embedding_scale, self.positions, positions)
        x = x if self.embedding_norm is None else operators.norm(x, self.embedding_norm)
        return Residual(x, self.pre_norm, operators)

    def for_layers(self, biases: list[Tensor]) -> list[Tensor | None]:
        """A bias for each layer: its own, the one of all, or none."""
        count = len(cast("nn.ModuleList", self.layers))
        return list(biases) if len(biases) == count else [biases[0] if biases else None] * count


class Encoder(Stack):
    """Source tokens to hidden states."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.encoder_heads, config.max_source_positions, both_sides=True)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self, embedding: Embedding, tokens: Tensor, places: Tensor, lengths: Extents, operators: Operators
    ) -> Tensor:
        """tokens (batch, source), places (source,), lengths (batch,) -> (batch, source, d_model).

        Without padding: tokens and places (tokens,) -> (tokens, d_model).
        """
        x = self.embed(embedding, tokens, places, operators)
        biases = self.for_layers([operators.source_bias(bias, places) for bias in self.tables()])
        for layer, bias in zip(self.layers, biases, strict=True):
            layer(x, lengths, bias, operators)
        return x.finish(self.final_norm)


class Decoder(Stack):
    """One new target token a row to hidden states."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.decoder_heads, config.max_target_positions, both_sides=False)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def forward(
        self, embedding: Embedding, tokens: Tensor, memories: Sequence[Past], pasts: Sequence[Past], step: Step
    ) -> tuple[Tensor, list[Past]]:
        """Tokens (groups, width) to hidden states and the caches with this step in them."""
        x = self.embed(embedding, tokens, step.positions, step.operators)
        biases = self.for_layers([step.operators.step_bias(bias, pasts[0], step.positions) for bias in self.tables()])
        presents = [
            layer(x, past, memory, bias, step)
            for layer, past, memory, bias in zip(self.layers, pasts, memories, biases, strict=True)
        ]
        return x.finish(self.final_norm), presents


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
        self.vocabulary = len(whole.weight)  # tokens, of which these are some
        self.weight = nn.Parameter(whole.weight[shortlist], requires_grad=False)
        self.register_buffer("bias", cast(Tensor, whole.bias)[shortlist], persistent=False)
        self.register_buffer("shortlist", shortlist, persistent=False)
        self.scale = whole.scale

    def tokens(self, places: Tensor) -> Tensor:
        return cast(Tensor, self.shortlist)[places]


class ListedOutputProjection(OutputProjection):
    """The same weights for all tokens, and lists of those that are generated into some languages.

    Which list a row has is known when the graphs run: here all logits are computed.
    """

    def __init__(self, whole: OutputProjection, shortlists: Sequence[Sequence[int]]) -> None:
        nn.Module.__init__(self)
        self.weight = whole.weight
        self.register_buffer("bias", cast(Tensor, whole.bias), persistent=False)
        self.shortlists = shortlists
        self.scale = whole.scale


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
        """The model with the same weights that can generate these tokens only."""
        model = copy.copy(self)
        model._modules = {**self._modules, "output": ShortOutputProjection(self.output, torch.tensor(shortlist))}
        return model

    def listed(self, shortlists: Sequence[Sequence[int]]) -> Transformer:
        """The model with the same weights that has these lists of tokens beside its vocabulary."""
        model = copy.copy(self)
        model._modules = {**self._modules, "output": ListedOutputProjection(self.output, shortlists)}
        model.config = dataclasses.replace(self.config, shortlists=len(shortlists))
        return model

    def aligned_by(self, heads: Sequence[tuple[int, int]]) -> Transformer:
        """The model with the same weights whose alignments are those of these heads."""
        model = copy.copy(self)
        model.config = dataclasses.replace(self.config, alignment_heads=tuple(heads))
        return model

    @property
    def choices(self) -> int:
        """How many tokens it can generate."""
        return len(self.output.weight)

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states and caches."""
        return self.target_embedding.dtype

    def encode(self, source_ids: Tensor, source_lengths: Tensor, operators: Operators | None = None) -> list[KeyValue]:
        """Sources (batch, source) to the keys and values every decoder layer will look at."""
        places = torch.arange(source_ids.shape[1])  # (source,)
        encoded = self.encoder(self.source_embedding, source_ids, places, source_lengths, operators or TorchOperators())
        layers = cast("Iterable[DecoderLayer]", self.decoder.layers)
        memories = [layer.cross_attention.memory(encoded) for layer in layers]
        return [KeyValue(key.to(self.dtype), value.to(self.dtype)) for key, value in memories]

    def step(  # noqa: PLR0917 - these are what a step is made of
        self,
        tokens: Tensor,
        positions: Tensor,
        source_lengths: Tensor,
        memories: Sequence[Past],
        pasts: Sequence[Past],
        operators: Operators | None = None,
    ) -> tuple[Tensor, list[Past]]:
        """One token a row, (groups, width) or (rows,), to logits (rows, choices) and the caches with this step."""
        step = Step(positions, source_lengths, operators or TorchOperators())
        hidden, presents = self.decoder(self.target_embedding, tokens, memories, pasts, step)
        return self.output(hidden.flatten(0, -2)), presents
