"""A lane whose caches ONNX Runtime reads and writes where they lie: past and present are one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.cache import CacheLayout, LaneCache
from dragoman.serving.engine.runtime import Best, Encoded
from dragoman.serving.engine.shapes import LaneShape

__all__ = ["InPlaceLane"]


class InPlaceLane:
    """Buffers are bound once and again only when a shape changes; a step writes three small arrays."""

    def __init__(self, session: Any, layout: CacheLayout, width: int) -> None:  # noqa: ANN401 - onnxruntime has no types
        self.width = width
        self._session, self._binding = session, session.io_binding()
        self._cache = LaneCache(layout, width)
        self._tokens = np.zeros((0, width), np.int64)
        self._positions = np.zeros((0, width), np.int32)
        self._candidates = np.zeros(1, np.int64)
        self._best = Best(np.zeros((0, 0), np.int64), np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32))
        self._bound: tuple[int, int] | None = None  # groups and candidates

    def resize(self, shape: LaneShape) -> None:
        self._cache.resize(shape)
        self._bound = None

    def join(self, encoded: Encoded, indices: Sequence[int]) -> None:
        self._cache.join(encoded, indices)

    def leave(self, group: int) -> None:
        self._cache.leave(group)

    def step(
        self,
        tokens: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        parents: npt.NDArray[np.int64],
        candidates: int,
    ) -> Best:
        cache, best = self._cache, self._best
        if self._bound != (cache.groups, candidates):
            best = self._bind(candidates)
        self._positions[:] = positions[:, None]
        if self.width == 1:
            self._tokens[:] = tokens
            self._session.run_with_iobinding(self._binding)
        else:
            rows = cache.follow(parents)
            self._tokens.reshape(-1)[rows] = tokens.ravel()
            self._session.run_with_iobinding(self._binding)
            best = Best(best.tokens.take(rows, 0), best.log_probs.take(rows, 0), best.logits.take(rows, 0))
        cache.filled[: cache.groups] = positions + 1
        return best

    def _bind(self, candidates: int) -> Best:
        """Name to ONNX Runtime where everything lies: leading slices of the caches, and our small arrays."""
        cache, groups, rows = self._cache, self._cache.groups, self._cache.rows
        self._tokens = np.zeros((groups, self.width), np.int64)
        self._positions = np.zeros((groups, self.width), np.int32)
        self._candidates[0] = candidates
        shape = (rows, candidates)
        self._best = Best(np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        for name, array in (("tokens", self._tokens), ("positions", self._positions), ("candidates", self._candidates)):
            self._bind_input(name, array)
        self._bind_input("source_lengths", cache.lengths[:groups])
        for index, (own, cross) in enumerate(zip(cache.own, cache.cross, strict=True)):
            name = f"{('key', 'value')[index % 2]}_{index // 2}"
            self._bind_input(f"cross_{name}", cross[:groups])
            self._bind_input(f"self_{name}", own[:rows])
            self._bind_output(f"present_self_{name}", own[:rows])
        self._bind_output("best_tokens", self._best.tokens)
        self._bind_output("best_log_probs", self._best.log_probs)
        self._bind_output("best_logits", self._best.logits)
        self._bound = (groups, candidates)
        return self._best

    # The pointers stay valid as long as the arrays do, and those are ours until the next _bind.

    def _bind_input(self, name: str, array: npt.NDArray[Any]) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def _bind_output(self, name: str, array: npt.NDArray[Any]) -> None:
        self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
