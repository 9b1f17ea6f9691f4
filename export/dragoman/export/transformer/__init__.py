"""The Transformer, readable as a lesson: config, positions, linear, layers, model."""

from dragoman.export.transformer.config import AttentionShape, TransformerConfig
from dragoman.export.transformer.model import ShortOutputProjection, Transformer

__all__ = ["AttentionShape", "ShortOutputProjection", "Transformer", "TransformerConfig"]
