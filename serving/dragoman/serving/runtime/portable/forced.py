"""Forced decoding with standard operators: a whole target goes in, log-probabilities and alignments come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dragoman.serving.engine.runtime import Encoded, ForcedPiece
from dragoman.serving.runtime.sessions import LazySession

__all__ = ["PortableForced"]

_OUTPUTS = ForcedPiece._fields


class PortableForced:
    """Standard operators: a target is read at once."""

    def __init__(
        self, session: LazySession, memories: Sequence[str], limits: tuple[int, int | None], aligns_when_fed: bool
    ) -> None:
        """`limits`: the most target tokens, and the candidates that the graph gives."""
        self._session, self._memories, self.aligns_when_fed = session, list(memories), aligns_when_fed
        self.tokens_at_once, self.max_candidates = limits

    def reader(self, encoded: Encoded, target_tokens: int) -> _PortableReader:  # noqa: ARG002
        return _PortableReader(self._session.open(), self._memories, encoded)


class _PortableReader:
    def __init__(self, session: Any, memories: Sequence[str], encoded: Encoded) -> None:  # noqa: ANN401
        self._session, self._memories, self._encoded = session, memories, encoded

    def read(self, tokens: Sequence[int], targets: Sequence[int] | None, candidates: int) -> ForcedPiece:
        binding = self._session.io_binding()
        for name, given in (("tokens", tokens), ("targets", tokens if targets is None else targets)):
            binding.bind_cpu_input(name, np.array([given], np.int64))
        binding.bind_cpu_input("source_lengths", np.ascontiguousarray(self._encoded.lengths[:1]))
        for name, memory in zip(self._memories, self._encoded.cross, strict=True):
            binding.bind_ortvalue_input(name, memory)
        for name in _OUTPUTS:
            binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        log_probs, alignment, best, best_log_probs = (array[0] for array in binding.copy_outputs_to_cpu())
        return ForcedPiece(log_probs, alignment, best[:, :candidates], best_log_probs[:, :candidates])
