"""Forced decoding with standard operators: a piece of a target is read together with everything before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dragoman.serving.engine.runtime import Encoded, ForcedPiece
from dragoman.serving.runtime.sessions import LazySession

__all__ = ["PortableForced"]

_TOKENS_AT_ONCE = 64
"""Twice as many as with a cache: what stands before is computed half as often."""
_OUTPUTS = ForcedPiece._fields


class PortableForced:
    """The graph has no past."""

    tokens_at_once = _TOKENS_AT_ONCE

    def __init__(
        self, session: LazySession, memories: Sequence[str], max_candidates: int | None, aligns_when_fed: bool
    ) -> None:
        self._session, self._memories, self.aligns_when_fed = session, list(memories), aligns_when_fed
        self.max_candidates = max_candidates

    def reader(self, encoded: Encoded, target_tokens: int) -> _PortableReader:  # noqa: ARG002
        return _PortableReader(self._session.open(), self._memories, encoded)


class _PortableReader:
    def __init__(self, session: Any, memories: Sequence[str], encoded: Encoded) -> None:  # noqa: ANN401
        self._session, self._memories, self._encoded = session, memories, encoded
        self._fed: list[int] = []

    def read(self, tokens: Sequence[int], targets: Sequence[int] | None, candidates: int) -> ForcedPiece:
        binding = self._session.io_binding()
        begin = len(self._fed)
        self._fed += tokens
        for name, given in (("tokens", self._fed), ("targets", tokens if targets is None else targets)):
            binding.bind_cpu_input(name, np.array([given], np.int64))
        binding.bind_cpu_input("target_positions", np.arange(begin, len(self._fed)))
        binding.bind_cpu_input("source_lengths", np.ascontiguousarray(self._encoded.lengths[:1]))
        for name, memory in zip(self._memories, self._encoded.cross, strict=True):
            binding.bind_ortvalue_input(name, memory)
        for name in _OUTPUTS:
            binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        log_probs, alignment, best, best_log_probs = (array[0] for array in binding.copy_outputs_to_cpu())
        return ForcedPiece(log_probs, alignment, best[:, :candidates], best_log_probs[:, :candidates])
