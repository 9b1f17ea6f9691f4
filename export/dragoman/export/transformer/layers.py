"""Encoder and decoder layers: attention and feed-forward, each with its residual and its norm."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from dragoman.export.lowering.portable import split_heads
from dragoman.export.lowering.protocol import KeyValue, Lowering, Past, Sources
from dragoman.export.transformer.config import AttentionShape, TransformerConfig
from dragoman.export.transformer.linear import FeedForward, LayerNorm, Linear, RMSNorm, make_norm

__all__ = ["CrossAttention", "DecoderLayer", "EncoderLayer", "SelfAttention", "Step"]


class Step(NamedTuple):
    """What all layers of one decoder step have in common."""

    positions: Tensor  # (groups, width): tokens already in the row's cache
    source_lengths: Tensor  # (groups,)
    bias: Tensor | None  # (rows, heads, 1, cache): relative positions
    lowering: Lowering


class SelfAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head₁ … head_h) W_O, with Q, K and V made from one input by one product."""

    def __init__(self, config: TransformerConfig, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape
        self.qkv = Linear(config.d_model, 3 * shape.width, config.attention_bias)
        self.output = Linear(shape.width, config.d_model, config.attention_bias)

    def over_source(self, x: Tensor, lengths: Tensor | Sources, bias: Tensor | None, lowering: Lowering) -> Tensor:
        """x (batch, source, d_model): every token sees every token that is not padding."""
        return self.output(lowering.encoder_attention(self.qkv(x), lengths, self.shape, bias))

    def over_past(self, x: Tensor, past: Past, step: Step) -> tuple[Tensor, Past]:
        """x (groups, width, d_model): each row's new token sees its own past. The mask of the paper is the cache's end."""
        seen, present = step.lowering.step_attention(self.qkv(x), past, step.positions, self.shape, step.bias)
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
        return self.output(step.lowering.cross_attention(self.query(x), memory, step.source_lengths, self.shape))


class Layer(nn.Module):
    """Sublayers with residuals. Post-norm: norm(x + f(x)), as in the paper; pre-norm: x + f(norm(x))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm

    def _before(self, x: Tensor, norm: LayerNorm | RMSNorm) -> Tensor:
        return norm(x) if self.pre_norm else x

    def _after(self, x: Tensor, update: Tensor, norm: LayerNorm | RMSNorm, lowering: Lowering) -> Tensor:
        return x + update if self.pre_norm else lowering.add_norm(x, update, norm)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.self_attention = SelfAttention(config, config.encoder_attention)
        self.self_attention_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)
        self.feed_forward = FeedForward(config, config.encoder_feed_forward)
        self.feed_forward_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)

    def forward(self, x: Tensor, lengths: Tensor | Sources, bias: Tensor | None, lowering: Lowering) -> Tensor:
        """x (batch, source, d_model)."""
        update = self.self_attention.over_source(self._before(x, self.self_attention_norm), lengths, bias, lowering)
        x = self._after(x, update, self.self_attention_norm, lowering)
        update = self.feed_forward(self._before(x, self.feed_forward_norm))
        return self._after(x, update, self.feed_forward_norm, lowering)


class DecoderLayer(Layer):
    """Self-attention over the past, cross-attention over the source, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.self_attention = SelfAttention(config, config.decoder_attention)
        self.self_attention_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)
        self.cross_attention = CrossAttention(config, config.decoder_attention)
        self.cross_attention_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)
        self.feed_forward = FeedForward(config, config.decoder_feed_forward)
        self.feed_forward_norm = make_norm(config.norm, config.d_model, config.norm_epsilon)

    def forward(self, x: Tensor, past: Past, memory: Past, step: Step) -> tuple[Tensor, Past]:
        """x (groups, width, d_model) -> the new hidden states and the cache with this step in it."""
        normed = self._before(x, self.self_attention_norm)
        update, present = self.self_attention.over_past(normed, past, step)
        x = self._after(x, update, self.self_attention_norm, step.lowering)
        update = self.cross_attention.over_source(self._before(x, self.cross_attention_norm), memory, step)
        x = self._after(x, update, self.cross_attention_norm, step.lowering)
        update = self.feed_forward(self._before(x, self.feed_forward_norm))
        return self._after(x, update, self.feed_forward_norm, step.lowering), present
