"""A decoder whose caches ONNX Runtime reads and writes where they lie: past and present are one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.kv_cache import CacheLayout, KVCache
from dragoman.serving.engine.runtime import Encoded, TopTokens
from dragoman.serving.engine.slots import KVSlots

__all__ = ["InPlaceDecoder"]


class _Bound:
    """What ONNX Runtime is told once for a number of sequences and of candidates: where its inputs and outputs lie."""

    def __init__(self, session: Any, cache: KVCache, candidates: int) -> None:  # noqa: ANN401
        sequences, rows, width = cache.sequences, cache.rows, cache.width
        self.binding = session.io_binding()
        self.tokens = np.zeros((sequences, width), np.int64)
        self.positions = np.zeros((sequences, width), np.int32)
        self.candidates = np.array([candidates], np.int64)
        shape = (rows, candidates)
        self.best = TopTokens(np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        for name, array in (("tokens", self.tokens), ("positions", self.positions), ("candidates", self.candidates)):
            self._bind_input(name, array)
        self._bind_input("source_lengths", cache.lengths[:sequences])
        for index, (own, cross) in enumerate(zip(cache.own, cache.cross, strict=True)):
            name = f"{('key', 'value')[index % 2]}_{index // 2}"
            self._bind_input(f"cross_{name}", cross[:sequences])
            self._bind_input(f"self_{name}", own[:rows])
            self._bind_output(f"present_self_{name}", own[:rows])
        self._bind_output("best_tokens", self.best.tokens)
        self._bind_output("best_log_probs", self.best.log_probs)
        self._bind_output("best_logits", self.best.logits)

    def moved(self, session: Any, cache: KVCache) -> _Bound | None:  # noqa: ANN401
        """The same, in a cache that was laid out anew; None when it holds others now."""
        if cache.sequences != len(self.tokens):
            return None
        there = _Bound(session, cache, int(self.candidates[0]))
        there.positions[:], there.best.tokens[:] = self.positions, self.best.tokens
        return there

    # The pointers stay valid as long as the arrays do: ours live as long as we, the cache's until it is resized.

    def _bind_input(self, name: str, array: npt.NDArray[Any]) -> None:
        self.binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def _bind_output(self, name: str, array: npt.NDArray[Any]) -> None:
        self.binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


class InPlaceDecoder:
    """Buffers are bound once for each number of sequences, until a shape changes; a step writes two small arrays."""

    def __init__(self, session: Any, layout: CacheLayout, width: int) -> None:  # noqa: ANN401 - onnxruntime has no types
        self.width = width
        self._session, self._cache = session, KVCache(layout, width)
        self._bound: dict[tuple[int, int], _Bound] = {}  # by sequences and candidates
        self._last: _Bound | None = None  # of the last step
        self._ahead = 0  # steps that the cache has not been told of

    @property
    def held_slots(self) -> KVSlots:
        return self._cache.shape.slots(self.width)

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        self._catch_up()
        source = int(encoded.lengths[list(indices)].max())
        if self._cache.make_room(len(indices), source, max(target_tokens)):
            self._bound.clear()
        self._last = None
        self._cache.join(encoded, indices)

    def leave(self, sequence: int) -> None:
        self._catch_up()
        self._last = None
        self._cache.leave(sequence)

    def reserve(self, target_tokens: int) -> None:
        self._catch_up()
        if self._cache.make_room(0, 0, target_tokens):
            self._moved()

    def release(self, target_tokens: int) -> None:
        self._catch_up()
        if self._cache.release(target_tokens):
            self._moved()

    def step(
        self,
        tokens: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        parents: npt.NDArray[np.int64],
        candidates: int,
    ) -> TopTokens:
        cache = self._cache
        bound = self._bound.get((cache.sequences, candidates))
        if bound is None:
            bound = self._bound[cache.sequences, candidates] = _Bound(self._session, cache, candidates)
        best, self._last, self._ahead = bound.best, bound, 0
        bound.positions[:] = positions[:, None]
        if self.width == 1:
            bound.tokens[:] = tokens
            self._session.run_with_iobinding(bound.binding)
        else:
            rows = cache.follow(parents)
            bound.tokens.reshape(-1)[rows] = tokens.ravel()
            self._session.run_with_iobinding(bound.binding)
            best = TopTokens(best.tokens.take(rows, 0), best.log_probs.take(rows, 0), best.logits.take(rows, 0))
        np.add(positions, 1, out=cache.filled[: cache.sequences])
        return best

    def step_on(self) -> TopTokens:
        bound = self._last
        if bound is None:
            raise RuntimeError("there was no step to go on from")
        bound.tokens[:] = bound.best.tokens[:, :1]
        bound.positions += 1
        self._ahead += 1
        self._session.run_with_iobinding(bound.binding)
        return bound.best

    def _moved(self) -> None:
        """The cache lies elsewhere now."""
        self._bound.clear()
        if self._last is not None:  # what it generated is still to be fed
            self._last = self._last.moved(self._session, self._cache)

    def _catch_up(self) -> None:
        if self._ahead:
            self._cache.filled[: self._cache.sequences] += self._ahead
            self._ahead = 0
