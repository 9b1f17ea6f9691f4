"""The heart: all active requests decode together; they join and leave at every step."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence

from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded, RequestError, ServerError
from dragoman.search import Hypothesis, search_batch
from dragoman.serving.engine.admission import Admission
from dragoman.serving.engine.counters import Counters, Gauges
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.request import Event, Finished, Progress, Request, Started
from dragoman.serving.engine.running import RunningLane
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.engine.sessions import Sessions
from dragoman.serving.engine.ticket import Ticket
from dragoman.serving.engine.waiting import Waiting

__all__ = ["Engine"]


_AT_ONCE = 4
"""Newcomers wait until this part of the rows is free: a step costs what its rows cost, so that empty ones lose nothing,
and several sources together are encoded faster …"""

_HELD_STEPS = 4
"""… but never longer than so many steps."""


class Engine:
    """Continuous batching. One thread owns it: `submit` and `cancel` between calls of `step`, which returns events.

    Every submitted request gets exactly one Finished, with the answer it would get alone.
    """

    def __init__(
        self,
        runtime: Runtime,
        model: ModelFacts,
        limits: EngineLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime, self._model, self._clock = runtime, model, clock
        self.limits = limits or EngineLimits()
        self.counters = Counters()
        self.sessions = Sessions(runtime, model, self.limits, clock)
        self._admission = Admission(self.limits, model, runtime.max_candidates)
        self._waiting = Waiting(self.limits)
        self._lanes: dict[int, RunningLane] = {}
        self._tickets: dict[str, Ticket] = {}
        self._cancelled: set[str] = set()
        self._deadlines: list[tuple[float, str]] = []
        self._orders = itertools.count()
        self._held = 0  # steps that newcomers have waited for company

    # What callers do.

    def submit(self, request: Request) -> None:
        """Queue a request; InvalidRequest when it can never run, Overloaded when there is no room for it now."""
        ticket = Ticket(request, self._clock())
        try:
            if request.id in self._tickets:
                raise ServerError(f"request id {request.id!r} is in use")
            self._admission.check(ticket)
            self._waiting.put(ticket)
        except RequestError as error:
            self.counters.requests[_outcome(error)] += 1
            raise
        self._tickets[request.id] = ticket
        if request.deadline_s is not None:
            heapq.heappush(self._deadlines, (request.deadline_s, request.id))

    def cancel(self, request_id: str) -> None:
        """End a request's work at the next step; nothing happens when it has ended already."""
        if request_id in self._tickets:
            self._cancelled.add(request_id)

    @property
    def busy(self) -> bool:
        """Is there anything that `step` would do?"""
        return bool(self._tickets)

    def step(self) -> list[Event]:
        """Drop who is gone, let newcomers join, decode one token in every row."""
        begun = self._clock()
        events = self._drop_cancelled_and_expired(begun)
        events += self._admit_newcomers()
        for lane in list(self._lanes.values()):
            self._make_room(lane)
            if len(lane):
                events += self._decode(lane)
        self.sessions.expire(begun)
        self.counters.steps += 1
        self.counters.step_s += self._clock() - begun
        return events

    # What a step does.

    def _drop_cancelled_and_expired(self, now: float) -> list[Event]:
        gone = [self._tickets[name] for name in self._cancelled]
        ended: list[Event] = [self._drop(ticket, Cancelled("the caller went away")) for ticket in gone]
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline_s, name = heapq.heappop(self._deadlines)
            ticket = self._tickets.get(name)
            if ticket is not None and ticket.request.deadline_s == deadline_s:  # else it has ended, and its id is another's
                ended.append(self._drop(ticket, DeadlineExceeded("the time the caller gave has passed")))
        return ended

    def _admit_newcomers(self) -> list[Event]:
        """Encode some of those who wait: a bounded number of tokens, so that those who run are not held up."""
        events: list[Event] = []
        if not len(self._waiting):
            return events
        rows = self.limits.max_rows
        free = rows - sum(lane.rows for lane in self._lanes.values())
        if free <= 0 or (_AT_ONCE * free < rows and self._held < _HELD_STEPS):
            self._held += free > 0
            return events
        self._held = 0
        budget = self.limits.encode_tokens_per_step
        while budget > 0 and len(self._waiting):
            room = self._admission.room(self._lanes.values())
            tickets = self._waiting.take(room, budget)
            if not tickets:
                break
            budget -= max(ticket.source_tokens for ticket in tickets) * len(tickets)
            events += self._begin(tickets)
        return events

    def _begin(self, tickets: Sequence[Ticket]) -> list[Event]:
        """Encode these together and let each join the lane of its width."""
        now = self._clock()
        begun: list[Event] = [Started(ticket.request) for ticket in tickets if ticket.admitted_s is None]
        for ticket in tickets:
            ticket.order = next(self._orders)
            if ticket.admitted_s is None:
                ticket.admitted_s = now
        try:
            encoded = self._runtime.encode([ticket.request.source for ticket in tickets])
        except Exception as error:
            return [self._finish(ticket, error=_ours(error)) for ticket in tickets]
        self.counters.encoder_calls += 1
        self.counters.encoded_tokens += sum(ticket.source_tokens for ticket in tickets)
        self.counters.encoded_cells += max(ticket.source_tokens for ticket in tickets) * len(tickets)
        for width in sorted({ticket.width for ticket in tickets}):
            indices = [index for index, ticket in enumerate(tickets) if ticket.width == width]
            newcomers = [tickets[index] for index in indices]
            self._make_room(self._lane(width), newcomers)
            self._lane(width).join(newcomers, encoded, indices)
        return begun

    def _make_room(self, lane: RunningLane, newcomers: Sequence[Ticket] = ()) -> None:
        """Let the lane grow for its next step; if memory is short, the latest requests give way and start again later."""
        lanes, shape = self._lanes.values(), lane.shape_with(newcomers)
        if shape != lane.shape and not self._admission.fits(lanes, lane, shape):
            for other in lanes:
                other.resize(other.shape_with(tight=True))
            shape = lane.shape_with(newcomers, tight=True)
            while not self._admission.fits(lanes, lane, shape):
                latest = max((ticket for other in lanes for ticket in other.tickets), key=_precedence)
                self._take_out(latest)
                self._lanes[latest.width].resize(self._lanes[latest.width].shape_with(tight=True))
                self._waiting.put_back(latest)
                self.counters.preemptions += 1
                shape = lane.shape_with(newcomers, tight=True)
        lane.resize(shape)

    def _decode(self, lane: RunningLane) -> list[Event]:
        """One step of a lane; the answers of those who are done."""
        self.counters.lane_steps += 1
        self.counters.decoded_rows += lane.rows
        try:
            done = lane.step(self._runtime.max_candidates)
        except Exception as error:
            del self._lanes[lane.width]
            return [self._finish(ticket, error=_ours(error)) for ticket in lane.disband()]
        lane.note_first_tokens(self._clock())
        events: list[Event] = []
        for group, ticket in enumerate(lane.tickets) if lane.streams else ():
            if ticket.request.stream and group not in done:
                events += self._progress(ticket, lane.decided(group))
        for group in done:
            ticket, hypotheses = lane.tickets[group], lane.hypotheses(group)
            lane.leave(group)
            if ticket.request.stream:
                events += self._progress(ticket, hypotheses[0].tokens)
            events.append(self._finish(ticket, hypotheses=hypotheses))
        return events

    # Small steps.

    def _lane(self, width: int) -> RunningLane:
        if width not in self._lanes:
            search = search_batch(width, self._model, self._model.target_vocabulary)
            self._lanes[width] = RunningLane(search, self._runtime.lane(width), self._runtime.spare_room_is_free)
        return self._lanes[width]

    def _drop(self, ticket: Ticket, error: RequestError) -> Finished:
        if not self._take_out(ticket):
            self._waiting.remove(ticket)
        return self._finish(ticket, error=error)

    def _take_out(self, ticket: Ticket) -> bool:
        """Out of its lane, if it runs."""
        lane = self._lanes.get(ticket.width)
        if lane is None or ticket not in lane.tickets:
            return False
        lane.leave(lane.tickets.index(ticket))
        return True

    def _progress(self, ticket: Ticket, decided: tuple[int, ...]) -> list[Event]:
        new, ticket.sent = decided[ticket.sent :], max(ticket.sent, len(decided))
        return [Progress(ticket.request, new)] if new else []

    def _finish(
        self, ticket: Ticket, hypotheses: tuple[Hypothesis, ...] = (), error: RequestError | None = None
    ) -> Finished:
        now = self._clock()
        del self._tickets[ticket.request.id]
        self._cancelled.discard(ticket.request.id)
        self._waiting.finished(now)
        self.counters.requests[_outcome(error)] += 1
        if error is None:
            self.counters.source_tokens += ticket.source_tokens
            self.counters.target_tokens += sum(len(hypothesis.tokens) for hypothesis in hypotheses)
        return Finished(ticket.request, ticket.timings(now), hypotheses, error)

    # What watchers ask.

    def gauges(self) -> Gauges:
        lanes = self._lanes.values()
        return Gauges(
            queued_requests=len(self._waiting),
            queued_tokens=self._waiting.tokens,
            running_requests=sum(map(len, lanes)),
            running_rows=sum(lane.rows for lane in lanes),
            max_rows=self.limits.max_rows,
            self_cells=sum(lane.shape.self_cells(lane.width) for lane in lanes),
            self_cells_limit=self.limits.self_cells(self._model),
            cross_cells=sum(lane.shape.cross_cells for lane in lanes),
            cross_cells_limit=self.limits.cross_cells(self._model),
            cells_in_use=sum(lane.tokens_held for lane in lanes),
            sessions=len(self.sessions),
        )

    def check(self) -> None:
        """AssertionError when a slot is leaked or owned twice, or more memory is in use than promised."""
        running = [ticket for lane in self._lanes.values() for ticket in lane.tickets]
        if len(running) + len(self._waiting) != len(self._tickets) or len(set(map(id, running))) != len(running):
            raise AssertionError(f"{len(running)} run, {len(self._waiting)} wait, {len(self._tickets)} are known")
        for lane in self._lanes.values():
            lane.check()
        gauges = self.gauges()
        if gauges.self_cells > gauges.self_cells_limit or gauges.cross_cells > gauges.cross_cells_limit:
            raise AssertionError(f"more cache is in use than promised: {gauges}")


def _precedence(ticket: Ticket) -> tuple[bool, int]:
    return ticket.request.priority == "batch", ticket.order


def _ours(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    ours = ServerError("the model could not be run")
    ours.__cause__ = error  # for the log: what a library says is not for callers
    return ours


def _outcome(error: RequestError | None) -> str:
    return "ok" if error is None else _OUTCOMES.get(type(error), "failed")


_OUTCOMES: dict[type[RequestError], str] = {
    Cancelled: "cancelled",
    DeadlineExceeded: "deadline",
    InvalidRequest: "invalid",
    Overloaded: "overloaded",
}
