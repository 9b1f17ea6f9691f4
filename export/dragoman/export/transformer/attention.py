"""Attention in plain torch: the reference, and what the portable graphs are traced from."""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.export.transformer.config import AttentionShape
from dragoman.export.transformer.linear import Map
from dragoman.export.transformer.operators import KeyValue, Norm
from dragoman.export.transformer.positions import PositionTable, RelativeBias

__all__ = ["TorchOperators", "attention", "attention_weights", "cached_attention", "join_heads", "split_heads", "within"]

HIDDEN = -1e4
"""The score of what may not be seen: exp gives exactly 0 in float32, and float16 can hold it."""


class TorchOperators:
    """Attention as MatMul and Softmax, cache writes as Where."""

    def embed(self, embedding: Map, tokens: Tensor, scale: float, table: PositionTable | None, positions: Tensor) -> Tensor:
        x = embedding(tokens)
        x = x if scale == 1.0 else x * scale
        return x if table is None else x + table(positions)

    def source_bias(self, bias: RelativeBias, positions: Tensor) -> Tensor:
        """(1, heads, source, source)."""
        return bias(positions[None], positions)

    def step_bias(self, bias: RelativeBias, past: KeyValue, positions: Tensor) -> Tensor:
        """(rows, heads, 1, cache)."""
        return bias(positions.reshape(-1, 1).long(), torch.arange(past.key.shape[2]))

    def encoder_attention(self, packed: Tensor, lengths: Tensor, shape: AttentionShape, bias: Tensor | None) -> Tensor:
        query, key, value = (split_heads(part, shape) for part in packed.chunk(3, dim=-1))
        return join_heads(attention(query, KeyValue(key, value), shape.scale, within(key, lengths), bias))

    def step_attention(
        self, packed: Tensor, past: KeyValue, positions: Tensor, shape: AttentionShape, bias: Tensor | None
    ) -> tuple[Tensor, KeyValue]:
        return cached_attention(packed, past, positions, shape, bias)

    def cross_attention(self, query: Tensor, memory: KeyValue, lengths: Tensor, shape: AttentionShape) -> Tensor:
        visible = within(memory.key, lengths)  # (groups, 1, 1, source)
        heads = split_heads(query, shape)  # (groups, heads, width, head_dim): a group's rows are its queries
        return join_heads(attention(heads, memory, shape.scale, visible))

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        return norm(x)

    def add_norm(self, x: Tensor, update: Tensor, norm: Norm) -> Tensor:
        return norm(x + update)

    def add_then_norm(self, x: Tensor, update: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        total = x + update
        return total, norm(total)


def attention(query: Tensor, keys: KeyValue, scale: float, visible: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ · scale + bias) V, with scale = 1 / sqrt(head_dim) unless the model says otherwise.

    query (rows, heads, q, head_dim); keys (rows, heads, k, head_dim); visible and bias broadcast to (rows, heads, q, k).
    """
    key, value = (part.to(query.dtype) for part in keys)  # a layer kept in float32 reads a float16 cache
    return torch.matmul(attention_weights(query, key, scale, visible, bias), value)


def attention_weights(query: Tensor, key: Tensor, scale: float, visible: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ · scale + bias): (rows, heads, q, k)."""
    scores = torch.matmul(query * scale, key.transpose(-1, -2))  # scaled before the product: float16 does not overflow
    if bias is not None:
        scores = scores + bias
    scores = torch.where(visible, scores, torch.full((), HIDDEN, dtype=scores.dtype))
    return scores.softmax(-1)


def cached_attention(
    packed: Tensor, past: KeyValue, positions: Tensor, shape: AttentionShape, bias: Tensor | None
) -> tuple[Tensor, KeyValue]:
    """One new token a row: written at its position, then attending to all up to it.

    The write is a Where over the whole cache: rows stand at different positions, and a Where that reads and writes
    each element once is right even if past and present are the same memory.
    """
    groups, width, _ = packed.shape
    row = positions.reshape(-1, 1, 1, 1)  # (rows, 1, 1, 1)
    place = torch.arange(past.key.shape[2], dtype=torch.int32)  # (cache,)
    query, key, value = (part.reshape(-1, shape.heads, 1, shape.head_dim) for part in packed.chunk(3, dim=-1))
    here = place[:, None] == row  # (rows, 1, cache, 1)
    present = KeyValue(
        torch.where(here, key.to(past.key.dtype), past.key), torch.where(here, value.to(past.value.dtype), past.value)
    )
    # Spread over the heads, though broadcasting would do: without it TensorRT-RTX 1.7 crashes on heads of 64.
    visible = (place <= row).expand(-1, shape.heads, 1, -1)  # (rows, heads, 1, cache)
    seen = attention(query, present, shape.scale, visible, bias)  # (rows, heads, 1, head_dim)
    return seen.reshape(groups, width, shape.width), present


def split_heads(x: Tensor, shape: AttentionShape) -> Tensor:
    """(batch, length, heads · head_dim) -> (batch, heads, length, head_dim)."""
    batch, length, _ = x.shape
    return x.reshape(batch, length, shape.heads, shape.head_dim).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, head_dim) -> (batch, length, heads · head_dim)."""
    return x.transpose(1, 2).flatten(2)


def within(key: Tensor, lengths: Tensor) -> Tensor:
    """True where a key is not padding; (batch, 1, 1, source)."""
    place = torch.arange(key.shape[2], dtype=torch.int32)
    return (place < lengths[:, None])[:, None, None, :]
