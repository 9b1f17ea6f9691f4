"""One client-driven decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest
from dragoman.serving.engine.limits import ModelFacts
from dragoman.serving.engine.runtime import Best, Lane, Runtime
from dragoman.serving.engine.shapes import EMPTY, LaneShape, bucket, fitted

__all__ = ["Session"]

Ids = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Rows:
    """What a step asks for one source."""

    first: int  # number of its first row in the step
    parents: Ids  # (width,) rows of the source at the previous step
    tokens: Ids  # (width,)


class Session:
    """Sources with their caches. All stand at the same position: a step feeds every source that is still there.

    Sources of one width share a lane. A source that changes its width moves to a new lane, where its tokens are fed again:
    rare, exact, and any runtime can do it.
    """

    def __init__(self, runtime: Runtime, model: ModelFacts, sources: Sequence[Sequence[int]]) -> None:
        self._runtime, self._model = runtime, model
        self._encoded = runtime.encode(sources)
        self._history = {source: np.zeros((1, 0), np.int64) for source in range(len(sources))}  # (width, steps)
        self._first_row = dict.fromkeys(self._history, 0)  # of each source at the previous step
        self._lanes: list[_SessionLane] = []
        self.steps = 0
        self.used_s = 0.0

    @property
    def cross_cells(self) -> int:
        return len(self._encoded.lengths) * bucket(int(self._encoded.lengths.max()))

    @property
    def self_cells(self) -> int:
        return sum(lane.shape.self_cells(lane.lane.width) for lane in self._lanes)

    def step(self, rows: npt.NDArray[np.integer], candidates: int) -> Best:  # type: ignore[type-arg]
        """Best next tokens (rows, candidates) in the order of `rows`."""
        asked = self._asked(np.asarray(rows, np.int64).reshape(-1, 3))
        if self.steps >= self._model.max_target_tokens:
            raise InvalidRequest(f"the session is at the model's limit of {self._model.max_target_tokens} target tokens")
        for lane in self._lanes:
            lane.keep([source in asked and len(asked[source].tokens) == lane.lane.width for source in lane.sources])
        self._lanes = [lane for lane in self._lanes if lane.sources]
        placed = {source for lane in self._lanes for source in lane.sources}
        for width in sorted({len(wanted.tokens) for source, wanted in asked.items() if source not in placed}):
            self._place(width, [s for s, wanted in asked.items() if s not in placed and len(wanted.tokens) == width], asked)
        best = self._decode(asked, len(rows), candidates)
        self._history = {
            source: np.concatenate([self._history[source][wanted.parents], wanted.tokens[:, None]], axis=1)
            for source, wanted in asked.items()
        }
        self._first_row = {source: wanted.first for source, wanted in asked.items()}
        self.steps += 1
        return best

    def _asked(self, rows: Ids) -> dict[int, _Rows]:
        """The rows of each source; InvalidRequest when they make no sense."""
        if ((rows[:, 2] < 0) | (rows[:, 2] >= self._model.target_vocabulary)).any():
            raise InvalidRequest(f"a token of the step is outside the vocabulary of {self._model.target_vocabulary}")
        asked: dict[int, _Rows] = {}
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=rows[0, 0] - 1))
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            source = int(rows[start, 0])
            if source not in self._history or source in asked:
                raise InvalidRequest(f"source {source} of the step is unknown, done, or not side by side")
            parents = rows[start:end, 1] - self._first_row[source] if self.steps else np.zeros(end - start, np.int64)
            if (parents < 0).any() or (parents >= len(self._history[source])).any():
                raise InvalidRequest(f"a parent of source {source} is not one of its rows at the previous step")
            asked[source] = _Rows(int(start), parents, rows[start:end, 2])
        return asked

    def _place(self, width: int, sources: list[int], asked: dict[int, _Rows]) -> None:
        """Open a lane for these and feed it what they have said, each row with its parent's tokens."""
        lane = _SessionLane(self._runtime.lane(width), sources)
        lane.reserve(int(self._encoded.lengths[sources].max()), self.steps + 1)
        lane.lane.join(self._encoded, sources)
        self._lanes.append(lane)
        said = np.stack([self._history[source][asked[source].parents] for source in sources])  # (sources, width, steps)
        own = np.tile(np.arange(width), (len(sources), 1))
        for position in range(self.steps):
            lane.lane.step(np.ascontiguousarray(said[:, :, position]), np.full(len(sources), position), own, 1)
        lane.fed_again = True

    def _decode(self, asked: dict[int, _Rows], count: int, candidates: int) -> Best:
        best = Best(
            np.zeros((count, candidates), np.int64),
            np.zeros((count, candidates), np.float32),
            np.zeros((count, candidates), np.float32),
        )
        for lane in self._lanes:
            width, wanted = lane.lane.width, [asked[source] for source in lane.sources]
            lane.reserve(int(self._encoded.lengths[lane.sources].max()), self.steps + 1)
            own = np.tile(np.arange(width), (len(wanted), 1))
            parents = own if lane.fed_again else np.stack([one.parents for one in wanted])
            lane.fed_again = False
            tokens = np.stack([one.tokens for one in wanted])
            answer = lane.lane.step(tokens, np.full(len(wanted), self.steps), parents, candidates)
            at = np.concatenate([one.first + np.arange(width) for one in wanted])
            best.tokens[at], best.log_probs[at] = answer.tokens[:, :candidates], answer.log_probs[:, :candidates]
            best.logits[at] = answer.logits[:, :candidates]
        return best


class _SessionLane:
    """A lane and the sources whose groups it holds, in their order."""

    def __init__(self, lane: Lane, sources: list[int]) -> None:
        self.lane, self.sources = lane, list(sources)
        self.shape: LaneShape = EMPTY
        self.fed_again = False  # rows were fed their parents' tokens: nothing is left to reorder

    def reserve(self, source: int, target: int) -> None:
        shape = fitted(self.shape, len(self.sources), source, target)
        if shape != self.shape:
            self.lane.resize(shape)
            self.shape = shape

    def keep(self, kept: list[bool]) -> None:
        for group in reversed(range(len(kept))):
            if not kept[group]:
                self.lane.leave(group)
                self.sources[group] = self.sources[-1]
                self.sources.pop()
