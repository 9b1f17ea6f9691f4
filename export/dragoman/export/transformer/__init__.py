"""The Transformer, readable as a lesson: config, positions, linear, operators, attention, layers, model."""

from dragoman.export.transformer.attention import TorchOperators
from dragoman.export.transformer.config import AttentionShape, TransformerConfig
from dragoman.export.transformer.model import ShortOutputProjection, Transformer
from dragoman.export.transformer.operators import KeyValue, Operators
from dragoman.export.transformer.source import Variant, WeightSource, WholeModel

__all__ = [
    "AttentionShape",
    "KeyValue",
    "Operators",
    "ShortOutputProjection",
    "TorchOperators",
    "Transformer",
    "TransformerConfig",
    "Variant",
    "WeightSource",
    "WholeModel",
]
