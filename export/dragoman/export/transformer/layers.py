"""Encoder and decoder layers: attention and feed-forward, each with its residual and its norm."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from dragoman.export.transformer.attention import split_heads
from dragoman.export.transformer.config import AttentionShape, TransformerConfig
from dragoman.export.transformer.linear import FeedForward, Linear, make_norm
from dragoman.export.transformer.operators import Extents, KeyValue, Norm, Operators, Past

__all__ = ["CrossAttention", "DecoderLayer", "EncoderLayer", "Residual", "SelfAttention", "Step"]


class Step(NamedTuple):
    """What all layers of one decoder step have in common."""

    positions: Tensor  # (groups, width): tokens already in the row's cache
    source_lengths: Tensor  # (groups,)
    operators: Operators


class Residual:
    """The residual stream. Post-norm: norm(x + f(x)), as in the paper; pre-norm: x + f(norm(x)).

    With pre-norm a sublayer's update is added where the next one begins, so that sum and norm are one operator.
    """

    def __init__(self, x: Tensor, pre_norm: bool, operators: Operators) -> None:
        self._x, self._update, self._pre_norm, self._operators = x, None, pre_norm, operators

    _update: Tensor | None

    def enter(self, norm: Norm) -> Tensor:
        """What the next sublayer computes with."""
        if not self._pre_norm:
            return self._x
        if self._update is None:
            return self._operators.norm(self._x, norm)
        self._x, normed = self._operators.add_then_norm(self._x, self._update, norm)
        return normed

    def leave(self, update: Tensor, norm: Norm) -> None:
        """What the sublayer has computed."""
        if self._pre_norm:
            self._update = update
        else:
            self._x = self._operators.add_norm(self._x, update, norm)

    def finish(self, final_norm: Norm | None) -> Tensor:
        """After the last layer, with the norm that some models have there."""
        if self._update is None:
            return self._x if final_norm is None else self._operators.norm(self._x, final_norm)
        if final_norm is None:
            return self._x + self._update
        return self._operators.add_norm(self._x, self._update, final_norm)


class SelfAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head₁ … head_h) W_O, with Q, K and V made from one input by one product."""

    def __init__(self, config: TransformerConfig, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape
        self.qkv = Linear(config.d_model, 3 * shape.width, config.attention_bias)
        self.output = Linear(shape.width, config.d_model, config.attention_bias)

    def over_source(self, x: Tensor, lengths: Extents, bias: Tensor | None, operators: Operators) -> Tensor:
        """x (batch, source, d_model): every token sees every token that is not padding."""
        return self.output(operators.encoder_attention(self.qkv(x), lengths, self.shape, bias))

    def over_past(self, x: Tensor, past: Past, bias: Tensor | None, step: Step) -> tuple[Tensor, Past]:
        """x (groups, width, d_model): each row's new token sees its own past. The mask of the paper is the cache's end."""
        seen, present = step.operators.step_attention(self.qkv(x), past, step.positions, self.shape, bias)
        return self.output(seen), present


class CrossAttention(nn.Module):
    """Encoder-decoder attention: queries from the target, keys and values from the source, made once per source."""

    def __init__(self, config: TransformerConfig, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape
        self.query = Linear(config.d_model, shape.width, config.attention_bias)
        self.key_value = Linear(config.d_model, 2 * shape.width, config.attention_bias)
        self.output = Linear(shape.width, config.d_model, config.attention_bias)

    def memory(self, encoded: Tensor) -> KeyValue:
        """encoded (batch, source, d_model) -> keys and values (batch, heads, source, head_dim)."""
        key, value = self.key_value(encoded).chunk(2, dim=-1)
        return KeyValue(split_heads(key, self.shape), split_heads(value, self.shape))

    def over_source(self, x: Tensor, memory: Past, step: Step) -> Tensor:
        """x (groups, width, d_model)."""
        return self.output(step.operators.cross_attention(self.query(x), memory, step.source_lengths, self.shape))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, config.encoder_attention)
        self.self_attention_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)
        self.feed_forward = FeedForward(config, config.encoder_feed_forward)
        self.feed_forward_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)

    def forward(self, x: Residual, lengths: Extents, bias: Tensor | None, operators: Operators) -> None:
        """The stream (batch, source, d_model) goes through the layer."""
        entered = x.enter(self.self_attention_norm)
        x.leave(self.self_attention.over_source(entered, lengths, bias, operators), self.self_attention_norm)
        x.leave(self.feed_forward(x.enter(self.feed_forward_norm)), self.feed_forward_norm)


class DecoderLayer(nn.Module):
    """Self-attention over the past, cross-attention over the source, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, config.decoder_attention)
        self.self_attention_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)
        self.cross_attention = CrossAttention(config, config.decoder_attention)
        self.cross_attention_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)
        self.feed_forward = FeedForward(config, config.decoder_feed_forward)
        self.feed_forward_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)

    def forward(self, x: Residual, past: Past, memory: Past, bias: Tensor | None, step: Step) -> Past:
        """The stream (groups, width, d_model) goes through the layer; the result is the cache with this step in it."""
        update, present = self.self_attention.over_past(x.enter(self.self_attention_norm), past, bias, step)
        x.leave(update, self.self_attention_norm)
        x.leave(
            self.cross_attention.over_source(x.enter(self.cross_attention_norm), memory, step), self.cross_attention_norm
        )
        x.leave(self.feed_forward(x.enter(self.feed_forward_norm)), self.feed_forward_norm)
        return present
