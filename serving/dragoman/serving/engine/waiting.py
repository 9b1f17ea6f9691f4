"""The queue before the engine: bounded, interactive first, and similar lengths together."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque

from dragoman.errors import Overloaded
from dragoman.serving.engine.admission import Room
from dragoman.serving.engine.limits import EngineLimits
from dragoman.serving.engine.request import Priority
from dragoman.serving.engine.shapes import encoder_cells
from dragoman.serving.engine.ticket import Ticket

__all__ = ["Waiting"]

_INTERACTIVE_BEFORE_ONE_BATCH = 8
"""Batch work is never starved: after so many interactive requests in a row, one of its own goes first."""


_SIMILAR = 4
"""Sources that differ by so few tokens are encoded together: a call costs more than their padding."""


class Waiting:
    """Tickets of requests that do not run yet."""

    def __init__(self, limits: EngineLimits, pads_sources: bool = True) -> None:
        self._limits, self._pads_sources = limits, pads_sources
        self._queues: dict[Priority, OrderedDict[str, Ticket]] = {"interactive": OrderedDict(), "batch": OrderedDict()}
        self._passed = 0  # interactive requests since the last batch one
        self._finishes: deque[float] = deque(maxlen=64)  # when the last ones finished
        self.tokens = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, ticket: Ticket) -> None:
        """Overloaded when there is no room."""
        count, tokens = len(self) + 1, self.tokens + ticket.source_tokens
        if count > self._limits.max_queue_requests:
            raise Overloaded(f"the queue is full ({len(self)} requests)", self.retry_after_s())
        if tokens > self._limits.max_queue_tokens and len(self):
            raise Overloaded(f"the queue is full ({self.tokens} source tokens)", self.retry_after_s())
        self._queues[ticket.request.priority][ticket.request.id] = ticket
        self.tokens = tokens

    def put_back(self, ticket: Ticket) -> None:
        """At the front: it was running already. Never refused."""
        queue = self._queues[ticket.request.priority]
        queue[ticket.request.id] = ticket
        queue.move_to_end(ticket.request.id, last=False)
        self.tokens += ticket.source_tokens

    def remove(self, ticket: Ticket) -> None:
        del self._queues[ticket.request.priority][ticket.request.id]
        self.tokens -= ticket.source_tokens

    def head(self) -> Ticket | None:
        """Whose turn it is."""
        interactive, batch = self._queues["interactive"], self._queues["batch"]
        if batch and (not interactive or self._passed >= _INTERACTIVE_BEFORE_ONE_BATCH):
            return next(iter(batch.values()))
        return next(iter(interactive.values()), None)

    def take(self, room: Room, budget: int, window: int = 64) -> list[Ticket]:
        """The next request and others that may be encoded with it within `budget` tokens: where sources are padded, those
        that are about as long.

        Nothing when the next one does not fit: it waits for room, and nobody overtakes it.
        """
        first = self.head()
        if first is None or not room.take(first):
            return []
        taken, lengths = [first], [first.source_tokens]
        self._took(first)
        if room.rows_left <= 0:
            return taken
        near = itertools.islice(self._queues[first.request.priority].values(), window)
        others = [ticket for ticket in near if ticket.width == first.width]
        if self._pads_sources:
            others.sort(key=lambda one: abs(one.source_tokens - first.source_tokens))
        for ticket in others:
            lengths.append(ticket.source_tokens)
            too_different = self._pads_sources and max(lengths) - min(lengths) > max(_SIMILAR, max(lengths) // 4)
            if too_different or encoder_cells(lengths, self._pads_sources) > budget or not room.take(ticket):
                break
            taken.append(ticket)
            self._took(ticket)
        return taken

    def finished(self, now: float) -> None:
        """A request has left the engine: the throughput, from which the retry hint comes."""
        self._finishes.append(now)

    def retry_after_s(self) -> float:
        """When a quarter of the queue should be gone."""
        if len(self._finishes) < 2 or self._finishes[-1] <= self._finishes[0]:
            return 0.5
        per_request_s = (self._finishes[-1] - self._finishes[0]) / (len(self._finishes) - 1)
        return min(max(per_request_s * len(self) / 4, 0.05), 30.0)

    def _took(self, ticket: Ticket) -> None:
        self._passed = self._passed + 1 if ticket.request.priority == "interactive" else 0
        self.remove(ticket)
