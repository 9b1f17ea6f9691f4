"""How long sources and targets may be."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.errors import UsageError
from dragoman.export.transformer import TransformerConfig

__all__ = ["DEFAULT_TOKENS", "TokenLimits"]

DEFAULT_TOKENS = 512
"""The limit of a model whose positions have none, unless one is requested for."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The requested longest source and target; None: as long as the model's positions allow."""

    max_source_tokens: int | None = None
    max_target_tokens: int | None = None

    def source(self, config: TransformerConfig) -> int:
        """The longest source of a model; UsageError when the request exceeds its positions."""
        return _within(self.max_source_tokens, config.max_source_positions, "source")

    def target(self, config: TransformerConfig) -> int:
        """The longest target."""
        return _within(self.max_target_tokens, config.max_target_positions, "target")


def _within(requested: int | None, positions: int, side: str) -> int:
    if requested is None:
        return positions
    if not 1 <= requested <= positions:
        raise UsageError(f"--max-{side}-tokens {requested} must be between 1 and the model's {positions} positions")
    return requested
