"""The requests of one width that are being decoded: their searches, their caches, their owners, in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.search import Hypothesis, SearchBatch
from dragoman.serving.engine.runtime import Encoded, Lane
from dragoman.serving.engine.shapes import EMPTY, LaneShape, fitted, grown
from dragoman.serving.engine.ticket import Ticket

__all__ = ["RunningLane"]


_KEPT_IDLE = 8
"""An empty lane keeps room for so many groups: requests that come one by one find it ready."""


_FEW_CANDIDATES = 2 * 16 + 4
"""What a wide beam asks for without rules that look at its history."""


class RunningLane:
    """Group g of the search, of the cache and of `tickets` is the same request, always."""

    def __init__(self, search: SearchBatch, lane: Lane, spare_room_is_free: bool) -> None:
        self._search, self._lane, self._spare_room_is_free = search, lane, spare_room_is_free
        self.width = lane.width
        self.tickets: list[Ticket] = []
        self.shape = EMPTY
        self.source_needed = 0  # tokens of the longest source
        self.target_needed = 1  # positions that the next step needs in every row
        self._left = False  # somebody has left since the shape was weighed: it may be too large now

    def __len__(self) -> int:
        return len(self.tickets)

    @property
    def rows(self) -> int:
        return len(self.tickets) * self.width

    @property
    def tokens_held(self) -> int:
        """Cells of both caches that hold a token."""
        own = int(self._search.positions.sum()) * self.width
        return own + sum(ticket.source_tokens for ticket in self.tickets)

    def shape_with(self, newcomers: Sequence[Ticket] = (), tight: bool = False) -> LaneShape:
        """The shape for the next step, were `newcomers` with us."""
        if not (newcomers or tight or self._left) and self.target_needed <= self.shape.target:
            return self.shape  # most steps
        groups = len(self.tickets) + len(newcomers)
        if not groups and not tight and (self._spare_room_is_free or self.shape.groups <= _KEPT_IDLE):
            return self.shape
        source = max([self.source_needed, *(ticket.source_tokens for ticket in newcomers)])
        if tight or not self._spare_room_is_free:
            return fitted(EMPTY if tight else self.shape, groups, source, self.target_needed)
        # Room for what is expected, at once: growing step by step would copy everything again and again.
        expected = max((ticket.expected for ticket in (*self.tickets, *newcomers)), default=0)
        return grown(self.shape, groups, source, max(self.target_needed, expected))

    def resize(self, shape: LaneShape) -> None:
        self._left = False
        if shape != self.shape:
            self._lane.resize(shape)
            self.shape = shape

    def join(self, tickets: Sequence[Ticket], encoded: Encoded, indices: Sequence[int]) -> None:
        """Let these begin, for whom there is room; `indices` says where each stands in `encoded`."""
        self._lane.join(encoded, indices)
        for ticket in tickets:
            self._search.join(ticket.options)
            self.tickets.append(ticket)
            self.source_needed = max(self.source_needed, ticket.source_tokens)

    def leave(self, group: int) -> None:
        self._lane.leave(group)
        self._search.leave(group)
        gone, self.tickets[group] = self.tickets[group], self.tickets[-1]
        self.tickets.pop()
        self._left = True
        self.target_needed = int(self._search.positions.max(initial=0)) + 1
        if gone.source_tokens == self.source_needed:
            self.source_needed = max((ticket.source_tokens for ticket in self.tickets), default=0)

    def step(self, max_candidates: int | None) -> list[int]:
        """Decode one token in every row; the groups that are done, highest first."""
        search = self._search
        wanted = _rounded(search.candidates, search.vocabulary if max_candidates is None else max_candidates)
        best = self._lane.step(search.tokens, search.positions, search.parents, wanted)
        for ticket in self.tickets:
            ticket.steps += 1
        self.target_needed += 1
        return search.advance(best.tokens, best.log_probs, best.logits)

    def hypotheses(self, group: int) -> tuple[Hypothesis, ...]:
        return self._search.hypotheses(group)

    def decided(self, group: int) -> tuple[int, ...]:
        return self._search.decided(group)

    def check(self) -> None:
        """AssertionError when the three disagree on who is here."""
        if not len(self._search) == len(self.tickets) <= self.shape.groups:
            raise AssertionError(f"{len(self._search)} searches, {len(self.tickets)} requests, {self.shape}")
        for group, ticket in enumerate(self.tickets):
            if self._search.options(group) is not ticket.options:
                raise AssertionError(f"group {group} searches for another request than {ticket.request.id}")


def _rounded(candidates: int, most: int) -> int:
    """A few more than needed where the number would change at every step, and with it the shape of what comes back."""
    return min(candidates if candidates <= _FEW_CANDIDATES else -(-candidates // 16) * 16, most)
