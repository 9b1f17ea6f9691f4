"""The requests of one width that are being decoded: their searches, their caches, their owners, in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.search import Hypothesis, SearchBatch
from dragoman.search.greedy import GreedyBatch
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
        self._greedy = search if isinstance(search, GreedyBatch) else None
        self.width = lane.width
        self.tickets: list[Ticket] = []
        self.shape = EMPTY
        self.streams = 0  # of the tickets, those that want to hear what is decided
        self._steps = 0
        self._unheard: list[Ticket] = []  # those that have said nothing yet
        # What the next step needs in every row; of those who have left, too, until somebody wants to know (`needs`).
        self._source, self._target, self._left = 0, 1, False

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

    def needs(self) -> tuple[int, int, int]:
        """Groups, tokens of the longest source, and positions that the next step needs in every row."""
        if self._left:
            self._left = False
            self._source = max((ticket.source_tokens for ticket in self.tickets), default=0)
            self._target = int(self._search.positions.max(initial=0)) + 1
        return len(self.tickets), self._source, self._target

    def shape_with(self, newcomers: Sequence[Ticket] = (), tight: bool = False) -> LaneShape:
        """The shape for the next step, were `newcomers` with us."""
        may_shrink = tight or (self._left and not self._spare_room_is_free)
        if not newcomers and not may_shrink and self._target <= self.shape.target:
            return self.shape  # most steps
        groups, source, target = self.needs()
        groups += len(newcomers)
        if not groups and not tight and (self._spare_room_is_free or self.shape.groups <= _KEPT_IDLE):
            return self.shape
        source = max([source, *(ticket.source_tokens for ticket in newcomers)])
        if tight or not self._spare_room_is_free:
            return fitted(EMPTY if tight else self.shape, groups, source, target)
        # Room for what is expected, at once: growing step by step would copy everything again and again.
        expected = max((ticket.expected for ticket in (*self.tickets, *newcomers)), default=0)
        return grown(self.shape, groups, source, max(target, expected))

    def resize(self, shape: LaneShape) -> None:
        if shape != self.shape:
            self._lane.resize(shape)
            self.shape = shape

    def join(self, tickets: Sequence[Ticket], encoded: Encoded, indices: Sequence[int]) -> None:
        """Let these begin, for whom there is room; `indices` says where each stands in `encoded`."""
        self._lane.join(encoded, indices)
        for ticket in tickets:
            self._search.join(ticket.options)
            self.tickets.append(ticket)
            self._source = max(self._source, ticket.source_tokens)
            self.streams += ticket.request.stream
            ticket.steps -= self._steps  # counted when it leaves, and not at every step
            if ticket.first_token_s is None:
                self._unheard.append(ticket)

    def leave(self, group: int) -> None:
        self._lane.leave(group)
        self._search.leave(group)
        gone, self.tickets[group] = self.tickets[group], self.tickets[-1]
        self.tickets.pop()
        self.streams -= gone.request.stream
        gone.steps += self._steps
        if gone.first_token_s is None:
            self._unheard.remove(gone)
        self._left = True

    def disband(self) -> list[Ticket]:
        """Everybody, out of a lane that can't be trusted any more."""
        for ticket in self.tickets:
            ticket.steps += self._steps
        return self.tickets

    def step(self, max_candidates: int | None) -> list[int]:
        """Decode one token in every row; the groups that are done, highest first."""
        search, greedy = self._search, self._greedy
        self._steps += 1
        self._target += 1
        if greedy is not None and greedy.steady:  # most steps of greedy searches: nothing has to be said to the model
            best = self._lane.step_on()
            done = greedy.say_best(best.tokens[:, 0].tolist(), best.log_probs[:, 0].tolist())
            if done is not None:
                return done
        else:
            wanted = _rounded(search.candidates, search.vocabulary if max_candidates is None else max_candidates)
            best = self._lane.step(search.tokens, search.positions, search.parents, wanted)
        return search.advance(best.tokens, best.log_probs, best.logits)

    def note_first_tokens(self, now: float) -> None:
        """Whoever has been fed its prompt has just said its first token."""
        if self._unheard:
            for ticket in self._unheard:
                if ticket.steps + self._steps >= ticket.prompt_tokens:
                    ticket.first_token_s = now
            self._unheard = [ticket for ticket in self._unheard if ticket.first_token_s is None]

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
