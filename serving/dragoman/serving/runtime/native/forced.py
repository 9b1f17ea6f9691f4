"""Forced decoding with the custom operators: a target is read in pieces, whose keys and values stay in a small cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.kv_cache import CacheLayout
from dragoman.serving.engine.runtime import Encoded, ForcedPiece
from dragoman.serving.runtime.native.decoder import has_input
from dragoman.serving.runtime.sessions import LazySession

__all__ = ["NativeForced"]

_TOKENS_AT_ONCE = 32
"""As many as a batch has rows: a call takes about as long as a decoder step."""
_OUTPUTS = ForcedPiece._fields


class NativeForced:
    """Custom operators: a reader has a small cache of its own, and pieces of a target may have any length."""

    tokens_at_once = _TOKENS_AT_ONCE
    max_candidates: int | None = None

    def __init__(self, session: LazySession, layout: CacheLayout, *, aligns_when_fed: bool, aligns_alone: bool) -> None:
        """`aligns_alone`: the graph takes fewer targets than tokens, so that alignments cost no log-probabilities."""
        self._session, self._layout, self.aligns_when_fed = session, layout, aligns_when_fed
        self._aligns_alone = aligns_alone

    def reader(self, encoded: Encoded, target_tokens: int) -> _NativeReader:
        layout = self._layout
        cache = np.empty((layout.layers, target_tokens, 2 * layout.heads * layout.head_dim), np.float32)
        return _NativeReader(self._session.open(), encoded, cache, self._aligns_alone)


class _NativeReader:
    def __init__(
        self,
        session: Any,  # noqa: ANN401 - onnxruntime has no types
        encoded: Encoded,
        cache: npt.NDArray[np.float32],
        aligns_alone: bool,
    ) -> None:
        self._session, self._encoded, self._cache, self._read = session, encoded, cache, 0
        self._aligns_alone = aligns_alone

    def read(self, tokens: Sequence[int], targets: Sequence[int] | None, candidates: int) -> ForcedPiece:
        if targets is None:
            targets = () if self._aligns_alone else tokens
        begin, self._read = self._read, self._read + len(tokens)
        inputs: dict[str, npt.NDArray[Any]] = {
            "tokens": np.array(tokens, np.int64),
            "targets": np.array(targets, np.int64),
            "positions": np.arange(begin, self._read, dtype=np.int32),
            "self_cache": self._cache,
            "candidates": np.array([candidates], np.int64),
        }
        if has_input(self._session, "shortlists"):
            inputs["shortlists"] = np.array(self._encoded.shortlists or [0], np.int32)[:1]
        inputs |= {f"cross_{layer}": memory for layer, memory in enumerate(self._encoded.cross)}
        # ONNX Runtime takes arrays where they lie, so that the graph writes to the cache.
        log_probs, alignment, best, best_log_probs = self._session.run(_OUTPUTS, inputs)
        return ForcedPiece(log_probs, alignment, best[:, :candidates], best_log_probs[:, :candidates])
