"""Every variant of the encoder-decoder Transformer this project knows, as one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dragoman.errors import ExportError

__all__ = ["Activation", "AttentionShape", "Norm", "Positions", "TransformerConfig"]

Positions = Literal["sinusoidal", "fairseq_sinusoidal", "learned", "relative"]
"""The two kinds of sinusoids differ in their frequencies: 10000^(−2i/d), and fairseq's 10000^(−i/(d/2−1))."""

RANGES = {
    "d_model": 1 << 16,
    "encoder_layers": 1024,
    "decoder_layers": 1024,
    "encoder_heads": 1024,
    "decoder_heads": 1024,
    "encoder_feed_forward": 1 << 20,
    "decoder_feed_forward": 1 << 20,
    "source_vocabulary": 1 << 24,
    "target_vocabulary": 1 << 24,
    "max_source_positions": 1 << 20,
    "max_target_positions": 1 << 20,
    "inner_width": 1 << 16,
    "relative_buckets": 1 << 12,
    "relative_max_distance": 1 << 20,
}
"""The largest sizes that have been trained, and some room: a number beyond is a mistake in config.json."""

LARGEST_TABLE = 1 << 27
"""Numbers in a table of positions, which is computed before any weight has been looked at."""

Norm = Literal["layer", "rms"]
Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """How an attention is cut into heads: `heads` of `head_dim`, scores multiplied by `scale`."""

    heads: int
    head_dim: int
    scale: float

    @property
    def width(self) -> int:
        """Query, key and value are this wide with all heads side by side."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """What makes one Transformer different from another. The defaults are Vaswani et al. 2017 as Marian trains it.

    BART: learned positions with `position_offset=2`, `embedding_norm`. mBART: also `pre_norm` and `final_norm`.
    M2M100: fairseq's sinusoids with `position_offset=2`, `pre_norm`, `final_norm`. Pegasus: Marian with `pre_norm` and
    `final_norm`. T5: relative positions, `norm="rms"`, `pre_norm`, `final_norm`, no biases, `attention_scale=1`,
    `output_scale=d_model**-0.5` where the softmax is tied. UMT5: `relative_per_layer`.

    Relative positions have no limit of their own: `max_source_positions` and `max_target_positions` are chosen then.
    """

    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_feed_forward: int
    decoder_feed_forward: int
    source_vocabulary: int
    target_vocabulary: int
    max_source_positions: int
    max_target_positions: int
    attention_width: int | None = None  # None: d_model, as everywhere but in T5

    positions: Positions = "sinusoidal"
    position_offset: int = 0
    relative_buckets: int = 32
    relative_max_distance: int = 128
    relative_per_layer: bool = False  # every layer has its own table; otherwise one serves the whole stack

    pre_norm: bool = False
    norm: Norm = "layer"
    norm_epsilon: float = 1e-5
    embedding_norm: bool = False
    final_norm: bool = False

    activation: Activation = "relu"
    gated: bool = False
    attention_bias: bool = True
    feed_forward_bias: bool = True
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)

    embedding_scale: float = 1.0
    shared_embeddings: bool = True  # source and target have one embedding
    tied_output: bool = True  # the output projection is the target embedding
    output_bias: bool = True
    output_scale: float = 1.0

    alignment_heads: tuple[tuple[int, int], ...] = ()  # of the cross-attention, (layer, head) each; found at export
    shortlists: int = 0  # languages with lists of tokens, which the decoder's graph is told the number of

    def __post_init__(self) -> None:
        for name, most in RANGES.items():
            if not 1 <= getattr(self, name) <= most:
                raise ExportError(f"{name}={getattr(self, name)} must be between 1 and {most}")
        if not 0.0 < self.norm_epsilon < 1.0:
            raise ExportError(f"norm_epsilon={self.norm_epsilon} must be between 0 and 1")
        longest = max(self.max_source_positions, self.max_target_positions) + self.position_offset
        if self.positions != "relative" and longest * self.d_model > LARGEST_TABLE:
            raise ExportError(f"{longest} positions of {self.d_model} numbers are more than {LARGEST_TABLE} numbers")
        exact = self.relative_buckets // 2  # the first half of the decoder's buckets are for one distance each
        if self.positions == "relative" and not 2 <= exact < self.relative_max_distance:
            raise ExportError(
                f"relative_buckets={self.relative_buckets} must be 4 or more, and half of them less than "
                f"relative_max_distance={self.relative_max_distance}"
            )
        for side, heads in (("encoder", self.encoder_heads), ("decoder", self.decoder_heads)):
            if heads < 1 or self.inner_width % heads:
                raise ExportError(f"the {side}'s {heads} heads do not divide the attention width {self.inner_width}")
        if self.shared_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise ExportError(
                f"one embedding can't serve a source vocabulary of {self.source_vocabulary} "
                f"and a target vocabulary of {self.target_vocabulary}"
            )

    @property
    def inner_width(self) -> int:
        """Width of queries, keys and values."""
        return self.d_model if self.attention_width is None else self.attention_width

    @property
    def encoder_attention(self) -> AttentionShape:
        """Heads of the encoder's self-attention."""
        return self._attention(self.encoder_heads)

    @property
    def decoder_attention(self) -> AttentionShape:
        """Heads of the decoder's self- and cross-attention."""
        return self._attention(self.decoder_heads)

    def _attention(self, heads: int) -> AttentionShape:
        head_dim = self.inner_width // heads
        return AttentionShape(heads, head_dim, head_dim**-0.5 if self.attention_scale is None else self.attention_scale)
