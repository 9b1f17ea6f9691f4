"""The decoder of a batch: caches on the GPU, a few bytes sent and fetched at every step.

Rows are padded to those of the caches, so that shapes and addresses stay the same from step to step and a captured CUDA
graph stays valid. All changes of the sequences since the last step reach the graph in its `parents` input: row r continues
row parents[r] of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.bundle.consistency import ITEM_BYTES
from dragoman.search.constraints import Ids
from dragoman.serving.engine.kv_cache import EMPTY, CacheLayout, CacheShape, fitted
from dragoman.serving.engine.runtime import Encoded, TopTokens
from dragoman.serving.engine.slots import KVSlots, power_of_two
from dragoman.serving.runtime.scored_tokens import with_scored
from dragoman.serving.runtime.tensorrt.device import Gpu, Rows
from dragoman.serving.runtime.tensorrt.engine import Execution, LoadedEngine
from dragoman.serving.runtime.tensorrt.kv_cache import DeviceKVCache
from dragoman.serving.runtime.tensorrt.staging import Staging

__all__ = ["TensorRtDecoder", "padded_shape"]

_FRESH = -1
_STEP = ("tokens", "positions", "source_lengths", "parents")
_BEST = ("best_tokens", "best_log_probs", "best_logits")
_SCORED = ("scored_log_probs", "scored_logits")


def padded_shape(current: CacheShape, sequences: int, source: int, target: int, lengths: tuple[int, int]) -> CacheShape:
    """The cache shape that is needed; `lengths` are the longest source and target that the engine accepts."""
    shape = fitted(current, sequences, source, target)
    return CacheShape(shape.sequences, min(shape.source, lengths[0]), min(shape.target, lengths[1]))


class TensorRtDecoder:
    """Sequences of `width` rows each."""

    def __init__(self, engine: LoadedEngine, device: Gpu, layout: CacheLayout, width: int) -> None:
        self.width = width
        self._engine, self._device, self._layout = engine, device, layout
        names = [spec.name for spec in engine.graph.inputs]
        own, cross = ([name for name in names if name.startswith(prefix)] for prefix in ("self_", "cross_"))
        self._lengths_limit = engine.largest(cross[0], 2), engine.largest(own[0], 2)
        self._most_scored = engine.largest("scored_tokens", 1)
        self._columns = 1  # the scored tokens that every row has room for
        self._cache = DeviceKVCache(device, layout, width, own, cross)
        self._own, self._cross = own, cross
        self._target = 1  # the target tokens that every row has room for
        self._lengths: list[int] = []  # tokens of each sequence's source
        self._past: list[int] = []  # which sequence of the past each sequence is
        self._executions: tuple[Execution, Execution] | None = None  # one a side: addresses never change within them
        self._profile = -1

    @property
    def held_slots(self) -> KVSlots:
        return self._cache.shape.slots(self.width)

    def reserve(self, target_tokens: int) -> None:
        with self._device:
            self._resize(self._fitted(self._cache.shape, 0, 0, target_tokens))

    def release(self, target_tokens: int) -> None:
        with self._device:
            self._resize(self._fitted(EMPTY, 0, 0, target_tokens))

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        lengths = encoded.lengths[list(indices)].tolist()
        with self._device:
            target = max(self._target, *target_tokens)
            self._resize(self._fitted(self._cache.shape, len(indices), max(lengths), target))
            self._cache.join(len(self._lengths), encoded.cross, indices)
            self._lengths += lengths
            self._past += [_FRESH] * len(indices)

    def encoded(self, sequence: int) -> Encoded | None:  # noqa: ARG002
        return None

    def leave(self, sequence: int) -> None:
        last = len(self._lengths) - 1
        with self._device:
            if sequence != last:
                self._cache.move(sequence, last)
        for column in (self._lengths, self._past):
            column[sequence] = column[-1]
            column.pop()

    def step(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int) -> TopTokens:
        with self._device:
            execution = self._fed(tokens, positions, parents)
            execution.run()
            best = self._fetch(tokens.size, candidates)
            self._device.synchronise()
        self._stepped(len(tokens))
        self._last = best.tokens[:, :1].copy(), positions.copy(), parents, candidates
        return best

    def step_scoring(self, tokens: Ids, positions: Ids, parents: Ids, candidates: int, scored_tokens: Ids) -> TopTokens:
        """If there are more than the engine scores at once, the same step is repeated: it reads one side of the caches and
        writes the other.
        """
        rows, wanted = tokens.size, scored_tokens.shape[-1]
        flat = np.maximum(scored_tokens.reshape(rows, wanted), 0)
        found: list[tuple[npt.NDArray[np.float32], ...]] = []
        with self._device:
            self._make_columns(wanted)
            execution = self._fed(tokens, positions, parents)
            for begin in range(0, wanted, self._columns):
                some = flat[:, begin : begin + self._columns]
                sent = self._scored_staging.writable()["scored_tokens"]
                sent[:rows, : some.shape[1]] = some
                self._scored_staging.send()
                execution.run()
                if begin == 0:
                    best = self._fetch(rows, candidates)
                parts = [self._fetch_part(name, rows, some.shape[1], self._columns) for name in _SCORED]
                self._device.synchronise()
                found.append(tuple(part.copy() for part in parts))
        self._stepped(len(tokens))
        log_probs, logits = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
        return with_scored(best, scored_tokens, log_probs, logits)

    def step_on(self) -> TopTokens:
        tokens, positions, parents, candidates = self._last
        return self.step(tokens, positions + 1, parents, candidates)

    def _fed(
        self,
        tokens: Ids,
        positions: Ids,
        parents: Ids,
    ) -> Execution:
        """What runs the step, with what it reads on its way to the GPU."""
        sequences, width = tokens.shape
        execution = self._ready()[self._cache.side]
        sent = self._staging.writable()
        past = np.maximum(np.array(self._past, np.int64), 0)  # a fresh row may name any: its position, 0, hides all
        sent["tokens"][:sequences] = tokens
        sent["positions"][:sequences] = positions[:, None]
        sent["parents"][: sequences * width] = (past[:, None] * width + parents).ravel()
        sent["source_lengths"][:sequences] = self._lengths
        # Rows beyond are computed and never looked at: a token of no sequence, at the beginning of a row of its own.
        sent["tokens"][sequences:] = 0
        sent["positions"][sequences:] = 0
        sent["parents"][sequences * width :] = np.arange(sequences * width, len(sent["parents"]))
        sent["source_lengths"][sequences:] = 1
        self._staging.send()
        return execution

    def _stepped(self, sequences: int) -> None:
        self._cache.stepped()
        self._past = list(range(sequences))

    def _make_columns(self, wanted: int) -> None:
        """Room for so many scored tokens in every row, or for as many as the engine takes."""
        if (columns := min(power_of_two(wanted), self._most_scored)) > self._columns:
            self._columns, self._executions = columns, None

    def _fitted(self, current: CacheShape, newcomers: int, source: int, target: int) -> CacheShape:
        self._target = target
        sequences, longest = len(self._lengths) + newcomers, max([source, *self._lengths])
        return padded_shape(current, sequences, longest, target, self._lengths_limit)

    def _resize(self, shape: CacheShape) -> None:
        if shape == self._cache.shape:
            return
        pasts = [(to, at) for to, at in enumerate(self._past) if at != _FRESH]
        self._cache.resize(shape, len(self._lengths), pasts)
        self._past = [_FRESH if at == _FRESH else to for to, at in enumerate(self._past)]
        self._columns, self._executions = 1, None

    def _ready(self) -> tuple[Execution, Execution]:
        """The contexts of both sides, bound; made anew after the caches were."""
        if self._executions is None:
            shapes = self._shapes()
            profile = self._engine.profile_of(shapes)
            self._make_room()
            self._executions = self._engine.execution(profile), self._engine.execution(profile)
            for _ in self._executions:
                self._executions[self._cache.side].bind(shapes, {**self._addresses, **self._cache.addresses()})
                self._cache.stepped()
        return self._executions

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shape, heads, head_dim = self._cache.shape, self._layout.heads, self._layout.head_dim
        rows = shape.sequences * self.width
        return {
            "tokens": (shape.sequences, self.width),
            "positions": (shape.sequences, self.width),
            "source_lengths": (shape.sequences,),
            "parents": (rows,),
            "scored_tokens": (rows, self._columns),
            **dict.fromkeys(self._cross, (shape.sequences, heads, shape.source, head_dim)),
            **dict.fromkeys(self._own, (rows, heads, shape.target, head_dim)),
        }

    def _make_room(self) -> None:
        """Buffers for what is sent and fetched at every step, for the rows of the caches."""
        shapes = self._shapes()
        kinds = {spec.name: spec.dtype for spec in (*self._engine.graph.inputs, *self._engine.graph.outputs)}
        self._staging = Staging(self._device, {name: (shapes[name], kinds[name]) for name in _STEP})
        # Apart from the others, and zeros until a step scores tokens: few steps do.
        self._scored_staging = Staging(self._device, {"scored_tokens": (shapes["scored_tokens"], kinds["scored_tokens"])})
        self._scored_staging.send()
        rows, self._candidates = len(self._staging.writable()["parents"]), self._engine.graph.max_candidates or 1
        sizes = dict.fromkeys(_BEST, rows * self._candidates) | dict.fromkeys(_SCORED, rows * self._columns)
        self._told = {name: self._device.allocate(size * ITEM_BYTES[kinds[name]]) for name, size in sizes.items()}
        self._fetched = {name: self._device.pinned((size,), kinds[name]) for name, size in sizes.items()}
        self._addresses = {
            **self._staging.addresses,
            **self._scored_staging.addresses,
            **{name: buffer.address for name, buffer in self._told.items()},
        }

    def _fetch(self, rows: int, candidates: int) -> TopTokens:
        """Ask for the best of each row; they are there when the stream has been waited for."""
        candidates = min(candidates, self._candidates)
        return TopTokens(*(self._fetch_part(name, rows, candidates, self._candidates) for name in _BEST))

    def _fetch_part(self, name: str, rows: int, columns: int, all_columns: int) -> npt.NDArray[Any]:
        """The first columns of an output (rows, all_columns)."""
        host = self._fetched[name]
        item = host.array.itemsize
        source = Rows(self._told[name].address, all_columns * item)
        self._device.download_rows(host.address, source, columns * item, rows)
        return host.array[: rows * columns].reshape(rows, columns)
