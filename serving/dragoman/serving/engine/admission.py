"""Who may come in: what can never run is refused at once, what can't run yet waits. Counted in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.errors import InvalidRequest
from dragoman.search.constraints import check_tokens
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.running import RunningLane
from dragoman.serving.engine.shapes import EMPTY, LaneShape, fitted
from dragoman.serving.engine.ticket import Ticket

__all__ = ["Admission", "Room"]


class Admission:
    """The engine's limits, applied."""

    def __init__(self, limits: EngineLimits, model: ModelFacts, max_candidates: int | None) -> None:
        self._limits, self._model, self._max_candidates = limits, model, max_candidates
        self._self_cells, self._cross_cells = limits.self_cells(model), limits.cross_cells(model)

    def check(self, ticket: Ticket) -> None:
        """InvalidRequest for a request that could not even run alone."""
        model, limits = self._model, self._limits
        if not ticket.source_tokens:
            raise InvalidRequest("the source has no tokens")
        if ticket.source_tokens > model.max_source_tokens:
            raise InvalidRequest(
                f"the source has {ticket.source_tokens} tokens, the model takes {model.max_source_tokens}; split it"
            )
        if not 0 <= min(ticket.request.source) <= max(ticket.request.source) < model.source_vocabulary:
            raise InvalidRequest(f"a source token is outside the vocabulary of {model.source_vocabulary}")
        widest = min(limits.max_beam_size, limits.max_rows)
        if ticket.width > widest:
            raise InvalidRequest(f"beam_size={ticket.width} is more than this server allows ({widest})")
        ticket.bound(model.max_target_tokens)
        check_tokens(ticket.options, model.target_vocabulary)
        self._check_candidates(ticket)
        alone, options = fitted(EMPTY, 1, ticket.source_tokens, ticket.longest), ticket.options
        if alone.self_cells(ticket.width) > self._self_cells or alone.cross_cells > self._cross_cells:
            raise InvalidRequest(
                f"beam_size={ticket.width} with max_length={options.max_length} needs more cache than this server has "
                f"({self._self_cells} token positions); ask for less"
            )

    def fits(self, lanes: Iterable[RunningLane], changing: RunningLane, shape: LaneShape) -> bool:
        """Would everything fit if `changing` took `shape`?"""
        own, cross = shape.self_cells(changing.width), shape.cross_cells
        for lane in lanes:
            if lane is not changing:
                own, cross = own + lane.shape.self_cells(lane.width), cross + lane.shape.cross_cells
        return own <= self._self_cells and cross <= self._cross_cells

    def room(self, lanes: Sequence[RunningLane], joined: RunningLane, most: int) -> Room:
        """What is free now for newcomers of the lane `joined`, of which there may be `most`."""
        return Room(Budget(self._limits.max_rows, self._self_cells, self._cross_cells), lanes, joined, most)

    def _check_candidates(self, ticket: Ticket) -> None:
        options, most = ticket.options, self._max_candidates
        if most is None:
            return
        banned = sum(len(word) == 1 for word in options.bad_words)
        own = (options.top_k or self._model.choices) if options.sampling else 2 * ticket.width
        if own + banned + (options.min_length > 0) > most:
            raise InvalidRequest(
                f"beam_size={options.beam_size}, top_k={options.top_k} and {banned} bad words need more than the {most} "
                "best tokens that this model gives at a step"
            )


class Budget(NamedTuple):
    """What all lanes together may have."""

    rows: int
    self_cells: int
    cross_cells: int


class Room:
    """Rows and cache that are left for one lane, were those that `take` accepted in it already."""

    def __init__(self, budget: Budget, lanes: Sequence[RunningLane], joined: RunningLane, most: int) -> None:
        self.width = joined.width
        self.rows_left, self._self_cells, self._cross_cells = budget
        self.rows_left = min(self.rows_left - sum(lane.rows for lane in lanes), most * joined.width)
        self._alone = True
        for lane in lanes:
            if lane is not joined and len(lane):
                needs = _Needs.of_lane(lane)
                self._self_cells -= needs.self_cells
                self._cross_cells -= needs.cross_cells
                self._alone = False
        self._needs = _Needs.of_lane(joined) if len(joined) else _NOTHING

    def take(self, ticket: Ticket) -> bool:
        """Is there room for this one too? If so it is counted as being here."""
        before = self._needs
        source, target = max(before.source, ticket.source_tokens), max(before.target, ticket.expected)
        needs = _Needs.of(self.width, before.groups + 1, source, target)
        fits = needs.self_cells <= self._self_cells and needs.cross_cells <= self._cross_cells
        if not (fits and self.width <= self.rows_left) and (before.groups or not self._alone):
            return False  # who is alone fits: `check` has seen to that
        self._needs = needs
        self.rows_left -= self.width
        return True


class _Needs(NamedTuple):
    """What a lane needs."""

    groups: int
    source: int
    target: int
    self_cells: int
    cross_cells: int

    @classmethod
    def of(cls, width: int, groups: int, source: int, target: int) -> _Needs:
        shape = fitted(EMPTY, groups, source, target)
        return cls(groups, source, target, shape.self_cells(width), shape.cross_cells)

    @classmethod
    def of_lane(cls, lane: RunningLane) -> _Needs:
        groups, source, target = lane.needs()
        return cls.of(lane.width, groups, source, max(target, *(ticket.expected for ticket in lane.tickets)))


_NOTHING = _Needs(0, 0, 0, 0, 0)
