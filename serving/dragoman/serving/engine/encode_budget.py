"""How many tokens are encoded between two decoding steps, so that running sequences are not held up."""

from __future__ import annotations

__all__ = ["EncodeBudget"]

_ENCODE_S = 0.02
"""About how long the sources that are encoded between two steps may take …"""

_ENCODE_ALONE_S = 0.1
"""… and before the first step, when nothing runs that would wait. Sources that begin together are decoded together: a large
model would read all its weights for each of them otherwise."""

_WORTH_ENCODING = 128
"""Tokens that are encoded in any case: the weights are read for fewer of them, too, which takes as long."""


class EncodeBudget:
    """Based on the measured time of encoding."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._token_s = 0.0  # measured

    def note(self, tokens: int, seconds: float) -> None:
        """Record how long it took to encode so many tokens, padding included."""
        if tokens and seconds:
            token_s = seconds / tokens
            self._token_s = 0.8 * self._token_s + 0.2 * token_s if self._token_s else token_s

    def tokens(self, alone: bool) -> int:
        """How many may be encoded now; `alone`: nothing runs that would have to wait."""
        if not self._token_s:
            return self._most_tokens
        seconds = _ENCODE_ALONE_S if alone else _ENCODE_S
        return min(self._most_tokens, max(int(seconds / self._token_s), _WORTH_ENCODING))
