"""The heart: all active requests decode together; they join and leave at every step."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence

from dragoman.errors import Cancelled, DeadlineExceeded, RequestError, ServerError
from dragoman.search import Hypothesis
from dragoman.serving.engine.admission import Admission
from dragoman.serving.engine.counters import Counters, Gauges
from dragoman.serving.engine.crew import Crew
from dragoman.serving.engine.lanes import Lanes
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.outcomes import as_request_error, outcome_of
from dragoman.serving.engine.request import Event, Finished, Progress, Request, Started
from dragoman.serving.engine.running import RunningLane
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.engine.sessions import Sessions
from dragoman.serving.engine.shapes import encoder_cells
from dragoman.serving.engine.ticket import Ticket
from dragoman.serving.engine.waiting import Waiting

__all__ = ["Engine"]


_LONGEST_WAIT_S = 1.0
_STUCK_S = 5.0
"""A turn is over after a twentieth of a second and the call that runs then; no call takes so long."""


class Engine:
    """Continuous batching. One thread owns it: `submit` and `cancel` between calls of `step`, which returns events.

    Every submitted request gets exactly one Finished, with the answer it would get alone. Where the runtime does several
    calls at once best, lanes work in threads of their own, and `step` says what has happened since (`wait` for it).
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
        self._waiting = Waiting(self.limits, runtime.pads_sources)
        self._lanes = Lanes(runtime, model, self.limits)
        self._crew = Crew(self._lanes.at_once, clock)
        self._tickets: dict[str, Ticket] = {}
        self._gone: dict[str, RequestError] = {}  # why each is to be dropped
        self._deadlines: list[tuple[float, str]] = []
        self._orders = itertools.count()
        self._events: list[Event] = []  # since the last step

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
            self.counters.requests[outcome_of(error)] += 1
            raise
        self._tickets[request.id] = ticket
        if request.deadline_s is not None:
            heapq.heappush(self._deadlines, (request.deadline_s, request.id))

    def cancel(self, request_id: str) -> None:
        """End a request's work at the next step; nothing happens when it has ended already."""
        if request_id in self._tickets:
            self._gone.setdefault(request_id, Cancelled("the caller went away"))

    @property
    def busy(self) -> bool:
        """Is there anything that `step` would do, now or later?"""
        return bool(self._tickets)

    def step(self) -> list[Event]:
        """Hear the lanes, drop who is gone, let newcomers join, decode one token in every row (or begin to)."""
        now = self._clock()
        for lane in self._crew.take_finished():
            self._take_in(lane)
        if self._gone or self._deadlines:
            self._drop_gone(now)
        if len(self._waiting):
            self._let_newcomers_in()
        goes_on = False
        for lane in self._lanes.idle():
            self._make_room(lane)
            if len(lane):
                steps = self._lanes.steps_for(lane, len(self._waiting) > 0)
                self._crew.begin(lane, steps, self._lanes.is_alone(lane))
                if not lane.at_work:
                    self._take_in(lane)
                    goes_on = True
        if goes_on and self._tickets:
            self._crew.ring()  # nobody else will
        self.sessions.expire(now)
        events, self._events = self._events, []
        return events

    def wait(self) -> None:
        """Until `step` has something to do: at once, unless lanes work in threads of their own."""
        if self._tickets:
            self._crew.wait(self.patience_s(_LONGEST_WAIT_S))

    def patience_s(self, longest_s: float) -> float:
        """How long `step` need not be called, unless the `bell` can be read: until somebody's deadline, or `longest_s`."""
        if not self._tickets:
            return longest_s
        if self._crew.bell is None:
            return 0.0
        return min(max(self._deadlines[0][0] - self._clock(), 0.0), longest_s) if self._deadlines else longest_s

    @property
    def bell(self) -> int | None:
        """A file descriptor that can be read when a lane has something to say; None when lanes have no threads."""
        return self._crew.bell

    def close(self) -> None:
        """End the threads, if there are any; nothing may be asked of the engine after that."""
        self._crew.close()

    # What a step does.

    def _take_in(self, lane: RunningLane) -> None:
        """What a lane has done in its turn; the answers of those who are done."""
        turn = lane.end_turn()
        self.counters.take(turn)
        if len(self._waiting):
            self._lanes.hold_back(lane, turn)
        for ticket, error in turn.refused:
            self._finish(ticket, error=as_request_error(error))
        if turn.error is not None:
            self._lanes.remove(lane)
            for ticket in lane.tickets:
                self._finish(ticket, error=as_request_error(turn.error))
            return
        for group, ticket in enumerate(lane.tickets) if lane.streams else ():
            if ticket.request.stream and group not in turn.done:
                self._progress(ticket, lane.decided(group))
        for group in turn.done:
            ticket, hypotheses = lane.tickets[group], lane.hypotheses(group)
            lane.leave(ticket)
            if ticket.request.id in self._gone:
                self._finish(ticket, error=self._gone[ticket.request.id])
                continue
            if ticket.request.stream:
                self._progress(ticket, hypotheses[0].tokens)
            self._finish(ticket, hypotheses)

    def _drop_gone(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline_s, name = heapq.heappop(self._deadlines)
            ticket = self._tickets.get(name)
            if ticket is not None and ticket.request.deadline_s == deadline_s:  # else it has ended, and its id is another's
                self._gone.setdefault(name, DeadlineExceeded("the time the caller gave has passed"))
        for name, error in list(self._gone.items()):
            ticket = self._tickets[name]
            if ticket.lane is None:
                self._waiting.remove(ticket)
            elif ticket.lane.at_work:
                ticket.lane.wanted = True
                continue
            else:
                ticket.lane.leave(ticket)
            self._finish(ticket, error=error)

    def _let_newcomers_in(self) -> None:
        """Find lanes for those who wait: a bounded number of tokens each, so that those who run are not held up."""
        budgets: dict[RunningLane, int] = {}
        while (head := self._waiting.head()) is not None:
            lanes = [lane for lane in self._lanes.for_newcomers(head.width) if budgets.get(lane, 1) > 0]
            if not lanes:
                return
            lane = lanes[0]
            budget = budgets.get(lane, self.limits.encode_tokens_per_step // self._crew.size)
            fair = -(-len(self._waiting) // len(lanes))
            room = self._admission.room(self._lanes, lane, min(fair, lane.share - len(lane)))
            tickets = self._waiting.take(room, budget)
            if not tickets:
                return
            budgets[lane] = budget - encoder_cells([ticket.source_tokens for ticket in tickets], self._runtime.pads_sources)
            self._begin(lane, tickets)

    def _begin(self, lane: RunningLane, tickets: list[Ticket]) -> None:
        """Let these join the lane; they are encoded together in its next turn."""
        now = self._clock()
        for ticket in tickets:
            ticket.order = next(self._orders)
            if ticket.admitted_s is None:
                ticket.admitted_s = now
                self._events.append(Started(ticket.request))
        self._make_room(lane, tickets)
        lane.expect(tickets)
        lane.held = 0

    def _make_room(self, lane: RunningLane, newcomers: Sequence[Ticket] = ()) -> None:
        """Let the lane grow for its next step; if memory is short, the latest requests give way and start again later."""
        shape = lane.shape_with(newcomers)
        if shape != lane.shape and not self._admission.fits(self._lanes, lane, shape):
            self._call_back()
            for other in self._lanes:
                other.release()
            shape = lane.shape_with(newcomers, tight=True)
            while not self._admission.fits(self._lanes, lane, shape):
                latest = max((ticket for other in self._lanes for ticket in other.tickets), key=_precedence)
                self._take_out(latest)
                self._waiting.put_back(latest)
                self.counters.preemptions += 1
                shape = lane.shape_with(newcomers, tight=True)
        lane.shape = shape

    def _call_back(self) -> None:
        """All lanes between their turns."""
        working = [lane for lane in self._lanes if lane.at_work]
        for lane in working:
            lane.wanted = True
        while any(lane.at_work for lane in working):
            self._crew.wait(None)
            for lane in self._crew.take_finished():
                self._take_in(lane)
        self._crew.ring()  # they wait for the next step

    # Small steps.

    def _take_out(self, ticket: Ticket) -> None:
        """Out of its lane, and its memory with it."""
        if (lane := ticket.lane) is not None:
            lane.leave(ticket)
            lane.release()

    def _progress(self, ticket: Ticket, decided: tuple[int, ...]) -> None:
        new, ticket.sent = decided[ticket.sent :], max(ticket.sent, len(decided))
        if new:
            self._events.append(Progress(ticket.request, new))

    def _finish(self, ticket: Ticket, hypotheses: tuple[Hypothesis, ...] = (), error: RequestError | None = None) -> None:
        now = self._clock()
        del self._tickets[ticket.request.id]
        self._gone.pop(ticket.request.id, None)
        self._waiting.finished(now)
        self.counters.requests[outcome_of(error)] += 1
        if error is None:
            self.counters.source_tokens += ticket.source_tokens
            self.counters.target_tokens += sum(len(hypothesis.tokens) for hypothesis in hypotheses)
        self._events.append(Finished(ticket.request, ticket.timings(now), hypotheses, error))

    # What watchers ask.

    @property
    def is_stuck(self) -> bool:
        """Does a lane not come back from its thread? Without threads `step` itself would not."""
        now = self._clock()
        return any(lane.at_work and now - lane.began_s > _STUCK_S for lane in self._lanes)

    def gauges(self) -> Gauges:
        lanes = self._lanes
        return Gauges(
            queued_requests=len(self._waiting),
            queued_tokens=self._waiting.tokens,
            running_requests=sum(map(len, lanes)),
            running_rows=sum(lane.rows for lane in lanes),
            max_rows=self.limits.max_rows,
            calls_at_once=self._lanes.at_once,
            self_cells=sum(lane.shape.self_cells(lane.width) for lane in lanes),
            self_cells_limit=self.limits.self_cells(self._model),
            cross_cells=sum(lane.shape.cross_cells for lane in lanes),
            cross_cells_limit=self.limits.cross_cells(self._model),
            cells_in_use=sum(lane.tokens_held for lane in lanes),
            sessions=len(self.sessions),
        )

    def check(self) -> None:
        """AssertionError when a slot is leaked or owned twice, or more memory is in use than promised."""
        running = [ticket for lane in self._lanes for ticket in lane.tickets]
        if len(running) + len(self._waiting) != len(self._tickets) or len(set(map(id, running))) != len(running):
            raise AssertionError(f"{len(running)} run, {len(self._waiting)} wait, {len(self._tickets)} are known")
        for lane in self._lanes.idle():
            lane.check()
        gauges = self.gauges()
        if gauges.self_cells > gauges.self_cells_limit or gauges.cross_cells > gauges.cross_cells_limit:
            raise AssertionError(f"more cache is in use than promised: {gauges}")


def _precedence(ticket: Ticket) -> tuple[bool, int]:
    return ticket.request.priority == "batch", ticket.order
