"""Who may come in: what can never run is refused at once, what can't run yet waits. Counted in tokens."""

from __future__ import annotations

from collections.abc import Iterable
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

    def room(self, lanes: Iterable[RunningLane]) -> Room:
        """What is free now."""
        return Room(self._limits.max_rows, self._self_cells, self._cross_cells, lanes)

    def _check_candidates(self, ticket: Ticket) -> None:
        options, most = ticket.options, self._max_candidates
        if most is None:
            return
        banned = sum(len(word) == 1 for word in options.bad_words)
        own = (options.top_k or self._model.target_vocabulary) if options.sampling else 2 * ticket.width
        if own + banned + (options.min_length > 0) > most:
            raise InvalidRequest(
                f"beam_size={options.beam_size}, top_k={options.top_k} and {banned} bad words need more than the {most} "
                "best tokens that this model gives at a step"
            )


class Room:
    """Rows and cache that are left, were those that `take` accepted in already."""

    def __init__(self, rows: int, self_cells: int, cross_cells: int, lanes: Iterable[RunningLane]) -> None:
        self._self_cells, self._cross_cells = self_cells, cross_cells
        self._needs: dict[int, _Needs] = {}  # of the lanes, by their width
        for lane in lanes:
            if len(lane):
                groups, source, target = lane.needs()
                expected = max(ticket.expected for ticket in lane.tickets)
                self._needs[lane.width] = _Needs.of(lane.width, groups, source, max(target, expected))
        self.rows_left = rows - sum(width * needs.groups for width, needs in self._needs.items())

    def take(self, ticket: Ticket) -> bool:
        """Is there room for this one too? If so it is counted as being here."""
        width = ticket.width
        before = self._needs.get(width, _NOTHING)
        source, target = max(before.source, ticket.source_tokens), max(before.target, ticket.expected)
        needs = _Needs.of(width, before.groups + 1, source, target)
        own, cross = needs.self_cells - before.self_cells, needs.cross_cells - before.cross_cells
        for other in self._needs.values():
            own, cross = own + other.self_cells, cross + other.cross_cells
        fits = width <= self.rows_left and own <= self._self_cells and cross <= self._cross_cells
        if self._needs and not fits:  # who is alone fits: `check` has seen to that
            return False
        self._needs[width] = needs
        self.rows_left -= width
        return True


class _Needs(NamedTuple):
    """What a lane of some width needs."""

    groups: int
    source: int
    target: int
    self_cells: int
    cross_cells: int

    @classmethod
    def of(cls, width: int, groups: int, source: int, target: int) -> _Needs:
        shape = fitted(EMPTY, groups, source, target)
        return cls(groups, source, target, shape.self_cells(width), shape.cross_cells)


_NOTHING = _Needs(0, 0, 0, 0, 0)
