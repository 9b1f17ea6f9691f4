"""Forced decoding in plain torch: the log-probability of each token of a target, and its attention to the source.

There is no past: a piece of a target is read together with everything before it, but only the piece is returned, because
logits of whole targets are large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from dragoman.export.lowering.portable.modules import pairs, picked
from dragoman.export.transformer import AttentionShape, KeyValue, TorchOperators, Transformer
from dragoman.export.transformer.attention import attention, attention_weights, join_heads, split_heads, within
from dragoman.export.transformer.forced import head_weights, places_of
from dragoman.export.transformer.layers import Step
from dragoman.export.transformer.positions import RelativeBias

__all__ = ["ForcedGraph", "TargetOperators"]


class Memory(NamedTuple):
    """A layer's keys and values of the source, and the weights of its heads in the alignment if it contributes to it."""

    source: KeyValue
    heads: Tensor | None  # (heads,)


class TargetOperators(TorchOperators):
    """Attention of all tokens of a target, each over those up to itself; alignments are summed over the layers."""

    def __init__(self) -> None:
        self.alignment: Tensor | None = None  # (batch, target, source)

    def step_bias(self, bias: RelativeBias, past: object, positions: Tensor) -> Tensor:  # noqa: ARG002
        """(1, heads, target, target)."""
        return bias(positions.long(), positions[0].long())

    def step_attention(  # type: ignore[override]
        self, packed: Tensor, past: None, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, None]:
        query, key, value = (split_heads(part, shape) for part in packed.chunk(3, dim=-1))
        # Spread over the heads, though broadcasting would do, as in a decoder step.
        visible = (positions[:, None] <= positions[:, :, None])[:, None].expand(-1, shape.heads, -1, -1)
        return join_heads(attention(query, KeyValue(key, value), shape.scale, visible, bias)), past

    def cross_attention(  # type: ignore[override]
        self, query: Tensor, memory: Memory, lengths: Tensor, shape: AttentionShape
    ) -> Tensor:
        key, value = (part.to(query.dtype) for part in memory.source)
        weights = attention_weights(split_heads(query, shape), key, shape.scale, within(key, lengths))
        if memory.heads is not None:
            seen = (weights.float() * memory.heads[:, None, None]).sum(1)  # (batch, target, source)
            self.alignment = seen if self.alignment is None else self.alignment + seen
        return join_heads(torch.matmul(weights, value))


class ForcedGraph(nn.Module):
    """Encoded sources and their targets, padded, to log-probabilities and alignments."""

    def __init__(self, model: Transformer, candidates: int) -> None:
        super().__init__()
        self.model, self.candidates = model, candidates
        for layer, weights in head_weights(model.config).items():
            self.register_buffer(f"heads_{layer}", weights, persistent=False)
        self.register_buffer("places", places_of(model.output), persistent=False)

    places: Tensor | None

    def forward(
        self,
        tokens: Tensor,  # (batch, target): the start token and the target without its last token
        targets: Tensor,  # (batch, piece): what follows the tokens at `target_positions`
        target_positions: Tensor,  # (piece,)
        source_lengths: Tensor,  # (batch,)
        memories: Sequence[Tensor],  # key, value, key, value … (batch, heads, source, head_dim)
    ) -> list[Tensor]:
        operators, model = TargetOperators(), self.model
        positions = torch.arange(tokens.shape[1], dtype=torch.int32)[None]  # (1, target)
        seen = [Memory(pair, getattr(self, f"heads_{layer}", None)) for layer, pair in enumerate(pairs(memories))]
        step = Step(positions, source_lengths, operators)
        hidden, _ = model.decoder(model.target_embedding, tokens, seen, [None] * len(seen), step)
        told = hidden.index_select(1, target_positions)
        logits = model.output(told.flatten(0, -2)).float()  # (batch · piece, choices)
        of_all = logits.log_softmax(-1)
        log_probs = picked(of_all, targets.reshape(-1, 1), self.places)
        best_log_probs, best_places = of_all.topk(self.candidates, dim=-1)
        best = [model.output.tokens(best_places), best_log_probs]
        shape = targets.shape
        return [
            log_probs.reshape(shape),
            cast(Tensor, operators.alignment).index_select(1, target_positions),
            *(one.reshape(shape[0], shape[1], one.shape[-1]) for one in best),
        ]
