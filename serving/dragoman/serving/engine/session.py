"""One client-driven decoding. Its work is cut into slices of one model call each, so that batches decode in between."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest
from dragoman.search.constraints import Ids
from dragoman.serving.engine.limits import ModelFacts
from dragoman.serving.engine.runtime import Decoder, Encoded, Runtime, TopTokens
from dragoman.serving.engine.slots import KVSlots

__all__ = ["Session", "Slices"]

_CALL_CANDIDATES = 1 << 17
"""The most candidates of all rows that one call returns: sorting so many takes a few milliseconds. The rows of a source are
always in one call."""

Slices = Generator[None, None, None]
"""Work that is done by iterating: each step is one call of the model."""


@dataclass(slots=True)
class _Rows:
    """The rows that a step requests for one source."""

    first: int  # number of its first row in the step
    parents: Ids  # (width,) rows of the source at the previous step
    tokens: Ids  # (width,)


class Session:
    """Sources with their caches. All are at the same position: a step feeds every source that has not ended.

    Sources of one width share a decoder. A source that changes its width moves to a new decoder, where its tokens are fed
    again: rare, exact, and possible with any runtime. The same happens to sources for which more candidates are requested
    than one call returns.
    """

    def __init__(
        self,
        runtime: Runtime,
        model: ModelFacts,
        sources: Sequence[Sequence[int]],
        shortlists: Sequence[int] | None = None,
    ) -> None:
        self._runtime, self._model, self._sources = runtime, model, sources
        self._shortlists = shortlists or [0] * len(sources)
        self._encoded: list[Encoded] = []  # one for each source
        self._history = {source: np.zeros((1, 0), np.int64) for source in range(len(sources))}  # (width, steps)
        self._first_row = dict.fromkeys(self._history, 0)  # of each source at the previous step
        self._decoders: list[_SessionDecoder] = []
        self.cross_slots = sum(map(len, sources))
        self.steps = 0
        self.used_s = 0.0
        self.top: TopTokens | None = None  # of the last step

    @property
    def slots(self) -> KVSlots:
        """The slots that it uses: of its sources, and of the tokens that its rows have generated."""
        return KVSlots(sum(each.decoder.held_slots.own for each in self._decoders), self.cross_slots)

    def encode(self) -> Slices:
        """Encode the sources, one at a time."""
        for source, shortlist in zip(self._sources, self._shortlists, strict=True):
            self._encoded.append(replace(self._runtime.encode([source]), shortlists=[shortlist]))
            yield

    def step(self, rows: npt.NDArray[np.integer], candidates: int) -> Slices:  # type: ignore[type-arg]
        """Decode; `top` then has the best next tokens (rows, candidates) in the order of `rows`."""
        rows_of = self._asked(np.asarray(rows, np.int64).reshape(-1, 3))
        if self.steps >= self._model.max_target_tokens:
            raise InvalidRequest(f"the session is at the model's limit of {self._model.max_target_tokens} target tokens")
        for each in self._decoders:
            each.keep([source in rows_of and len(rows_of[source].tokens) == each.decoder.width for source in each.sources])
        self._decoders = [
            each for each in self._decoders if 0 < len(each.sources) <= _sources(each.decoder.width, candidates)
        ]
        placed = {source for each in self._decoders for source in each.sources}
        for width in sorted({len(wanted.tokens) for source, wanted in rows_of.items() if source not in placed}):
            moving = [s for s, wanted in rows_of.items() if s not in placed and len(wanted.tokens) == width]
            most = _sources(width, candidates)
            for begin in range(0, len(moving), most):
                yield from self._feed_again(width, moving[begin : begin + most], rows_of)
        yield from self._decode(rows_of, len(rows), candidates)
        self._history = {
            source: np.concatenate([self._history[source][wanted.parents], wanted.tokens[:, None]], axis=1)
            for source, wanted in rows_of.items()
        }
        self._first_row = {source: wanted.first for source, wanted in rows_of.items()}
        self.steps += 1

    def _asked(self, rows: Ids) -> dict[int, _Rows]:
        """The requested rows of each source; InvalidRequest when they are inconsistent."""
        if ((rows[:, 2] < 0) | (rows[:, 2] >= self._model.target_vocabulary)).any():
            raise InvalidRequest(f"a token of the step is outside the vocabulary of {self._model.target_vocabulary}")
        rows_of: dict[int, _Rows] = {}
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=rows[0, 0] - 1))
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            source = int(rows[start, 0])
            if source not in self._history or source in rows_of:
                raise InvalidRequest(f"source {source} of the step is unknown, done, or not side by side")
            parents = rows[start:end, 1] - self._first_row[source] if self.steps else np.zeros(end - start, np.int64)
            if (parents < 0).any() or (parents >= len(self._history[source])).any():
                raise InvalidRequest(f"a parent of source {source} is not one of its rows at the previous step")
            rows_of[source] = _Rows(int(start), parents, rows[start:end, 2])
        return rows_of

    def _feed_again(self, width: int, sources: list[int], rows_of: dict[int, _Rows]) -> Slices:
        """Open a decoder for these sources and feed it the generated tokens, each row with its parent's."""
        each = _SessionDecoder(self._runtime.decoder(width, len(sources)), list(sources))
        for source in sources:
            each.decoder.join(self._encoded[source], [0], [self.steps + 1])
        history = np.stack([self._history[source][rows_of[source].parents] for source in sources])  # (sources, width, steps)
        own = np.tile(np.arange(width), (len(sources), 1))
        for position in range(self.steps):
            each.decoder.step(np.ascontiguousarray(history[:, :, position]), np.full(len(sources), position), own, 1)
            yield
        each.fed_again = True
        self._decoders.append(each)

    def _decode(self, rows_of: dict[int, _Rows], count: int, candidates: int) -> Slices:
        shape = (count, candidates)
        top = TopTokens(np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        for each in self._decoders:
            width, wanted = each.decoder.width, [rows_of[source] for source in each.sources]
            each.decoder.reserve(self.steps + 1)
            own = np.tile(np.arange(width), (len(wanted), 1))
            parents = own if each.fed_again else np.stack([one.parents for one in wanted])
            each.fed_again = False
            tokens = np.stack([one.tokens for one in wanted])
            answer = each.decoder.step(tokens, np.full(len(wanted), self.steps), parents, candidates)
            at = np.concatenate([one.first + np.arange(width) for one in wanted])
            top.tokens[at], top.log_probs[at] = answer.tokens[:, :candidates], answer.log_probs[:, :candidates]
            top.logits[at] = answer.logits[:, :candidates]
            yield
        self.top = top


def _sources(width: int, candidates: int) -> int:
    """How many sources fit into one call."""
    return max(_CALL_CANDIDATES // (width * candidates), 1)


@dataclass(slots=True)
class _SessionDecoder:
    """A decoder and the sources that it holds, in their order."""

    decoder: Decoder
    sources: list[int]
    fed_again: bool = False  # rows were fed their parents' tokens: nothing is left to reorder

    def keep(self, kept: list[bool]) -> None:
        for index in reversed(range(len(kept))):
            if not kept[index]:
                self.decoder.leave(index)
                self.sources[index] = self.sources[-1]
                self.sources.pop()
