"""Who may come in: what can never run is refused at once, what can't run yet waits. Counted in tokens."""

from __future__ import annotations

from collections.abc import Iterable

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
        self._rows, self._self_cells, self._cross_cells = rows, self_cells, cross_cells
        # width -> groups, longest source, longest target expected
        self._needs = {lane.width: _needs(lane) for lane in lanes}

    def take(self, ticket: Ticket) -> bool:
        """Is there room for this one too? If so it is counted as being here."""
        groups, source, target = self._needs.get(ticket.width, (0, 0, 0))
        wanted = (groups + 1, max(source, ticket.source_tokens), max(target, ticket.expected))
        needs = {**self._needs, ticket.width: wanted}
        shapes = {width: fitted(EMPTY, *need) for width, need in needs.items()}
        rows = sum(width * need[0] for width, need in needs.items())
        own = sum(shape.self_cells(width) for width, shape in shapes.items())
        cross = sum(shape.cross_cells for shape in shapes.values())
        nobody = not any(need[0] for need in self._needs.values())
        if not nobody and (rows > self._rows or own > self._self_cells or cross > self._cross_cells):
            return False
        self._needs = needs
        return True


def _needs(lane: RunningLane) -> tuple[int, int, int]:
    expected = max((ticket.expected for ticket in lane.tickets), default=0)
    return len(lane), lane.source_needed, max(lane.target_needed, expected) if len(lane) else 0
