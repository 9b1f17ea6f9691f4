"""The requests of one width that are decoded side by side: their searches, their caches, their owners, in one order.

A lane works in turns. Between turns it is the engine's: tickets come and go, room is made. In its turn it belongs to the
thread that runs it, and the engine only reads what is marked so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman.search import Hypothesis, SearchBatch
from dragoman.search.greedy import GreedyBatch
from dragoman.serving.engine.runtime import Lane, Runtime
from dragoman.serving.engine.shapes import EMPTY, LaneShape, encoder_cells, fitted, grown
from dragoman.serving.engine.ticket import Ticket

__all__ = ["RunningLane", "Turn"]


_KEPT_IDLE = 8
"""An empty lane keeps room for so many groups: requests that come one by one find it ready."""


_FEW_CANDIDATES = 2 * 16 + 4
"""What a wide beam asks for without rules that look at its history."""


@dataclass(slots=True)
class Turn:
    """What a lane did in its turn."""

    steps: int = 0
    rows: int = 0
    seconds: float = 0.0
    done: Sequence[int] = ()
    """Groups that have come to their end, highest first."""
    encoded: tuple[list[Ticket], ...] = ()
    """Newcomers that have joined; each list was one call of the encoder."""
    encoded_cells: int = 0
    """Token positions that were computed for them."""
    refused: tuple[tuple[Ticket, Exception], ...] = ()
    """Newcomers that could not be encoded."""
    error: Exception | None = None
    """The lane can't be trusted any more."""


class RunningLane:
    """Group g of the search, of the cache and of `tickets` is the same request, always."""

    def __init__(self, search: SearchBatch, lane: Lane, runtime: Runtime, share: int) -> None:
        self._search, self._lane, self._runtime = search, lane, runtime
        self.share = share  # groups that it may hold
        self._spare_room_is_free = runtime.spare_room_is_free
        self._greedy = search if isinstance(search, GreedyBatch) else None
        self.width = lane.width
        self.tickets: list[Ticket] = []  # the last ones may be newcomers, who have not joined the search yet
        self.shape = EMPTY
        self.streams = 0  # of the tickets, those that want to hear what is decided
        self.held = 0  # steps that newcomers have waited for company
        self.at_work = False
        self.began_s = 0.0  # its turn, when it is at work
        self.wanted = False  # the engine asks to have it back after the step that runs
        self._newcomers: list[list[Ticket]] = []  # those of a list are encoded together
        self._turn = Turn()
        self._step_s = 0.0  # of the last turn
        self._laid_out = EMPTY  # what the cache's shape is, until the next turn
        self._steps = 0
        self._tokens_held = 0
        self._unheard: list[Ticket] = []  # those that have said nothing yet
        # What the next step needs in every row; of those who have left, too, until somebody wants to know (`needs`).
        self._source, self._target, self._left = 0, 1, False

    # At any time.

    def __len__(self) -> int:
        return len(self.tickets)

    @property
    def rows(self) -> int:
        return len(self.tickets) * self.width

    @property
    def tokens_held(self) -> int:
        """Cells of both caches that hold a token; in a turn, those that did before."""
        if not self.at_work:
            own = int(self._search.positions.sum()) * self.width
            self._tokens_held = own + sum(ticket.source_tokens for ticket in self.tickets)
        return self._tokens_held

    def needs(self) -> tuple[int, int, int]:
        """Groups, tokens of the longest source, and positions that the next step needs in every row; in a turn, at most."""
        if self._left and not self.at_work:
            self._left = False
            self._source = max((ticket.source_tokens for ticket in self.tickets), default=0)
            self._target = int(self._search.positions.max(initial=0)) + 1
        return len(self.tickets), self._source, self._target

    # Between turns.

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

    def expect(self, tickets: Sequence[Ticket]) -> None:
        """Let these begin in the next turn, encoded together; the shape has room for them."""
        self._newcomers.append(list(tickets))
        for ticket in tickets:
            ticket.lane = self
            self.tickets.append(ticket)
            self._source = max(self._source, ticket.source_tokens)
            self.streams += ticket.request.stream

    def leave(self, ticket: Ticket) -> None:
        self.streams -= ticket.request.stream
        self._left, ticket.lane = True, None
        for together in self._newcomers:
            if ticket in together:
                together.remove(ticket)
                self.tickets.remove(ticket)
                return
        group, last = self.tickets.index(ticket), len(self._search) - 1
        self._lane.leave(group)
        self._search.leave(group)
        self.tickets[group] = self.tickets[last]
        del self.tickets[last]
        ticket.steps += self._steps
        if ticket.first_token_s is None:
            self._unheard.remove(ticket)

    def steps_within(self, time_s: float) -> int:
        """How many steps like those of the last turn this time has room for; one at least."""
        return max(int(time_s / self._step_s), 1) if self._step_s > 0.0 else 1

    def release(self) -> None:
        """Give memory back at once: others need it."""
        self.shape = self.shape_with(tight=True)
        self._lay_out()

    def end_turn(self) -> Turn:
        """The lane is the engine's again."""
        turn, self._turn = self._turn, Turn()
        self.at_work = self.wanted = False
        if turn.refused:
            for ticket, _ in turn.refused:
                self.tickets.remove(ticket)
                self.streams -= ticket.request.stream
        if turn.error is not None:
            for ticket in self.tickets[: len(self._search)]:
                ticket.steps += self._steps
        return turn

    def hypotheses(self, group: int) -> tuple[Hypothesis, ...]:
        return self._search.hypotheses(group)

    def decided(self, group: int) -> tuple[int, ...]:
        return self._search.decided(group)

    def check(self) -> None:
        """AssertionError when the three disagree on who is here."""
        joined = len(self.tickets) - sum(map(len, self._newcomers))
        if not len(self._search) == joined <= self.shape.groups:
            raise AssertionError(f"{len(self._search)} searches, {len(self.tickets)} requests, {self.shape}")
        for group, ticket in enumerate(self.tickets[:joined]):
            if self._search.options(group) is not ticket.options:
                raise AssertionError(f"group {group} searches for another request than {ticket.request.id}")

    # The turn.

    def take_turn(self, most_steps: int, most_s: float, clock: Callable[[], float]) -> None:
        """Encode the newcomers, then decode one token in every row at each step, until somebody has to be heard."""
        turn, began_s = self._turn, clock()
        now_s = began_s
        try:
            with self._runtime.turn:
                self._lay_out()
                if self._newcomers:
                    self._let_in(turn)
                turn.rows = len(self._search) * self.width
                while turn.rows and turn.steps < most_steps:
                    turn.done = self._step()
                    turn.steps += 1
                    now_s = clock()
                    self._note_first_tokens(now_s)
                    out_of_room = self._target > self.shape.target
                    if turn.done or self.wanted or self.streams or out_of_room or now_s - began_s >= most_s:
                        break
        except Exception as error:  # whatever a library raises: it is told as the answer of everybody here
            turn.error = error
        turn.seconds = now_s - began_s
        self._step_s = turn.seconds / max(turn.steps, 1)

    def _lay_out(self) -> None:
        if self._laid_out != self.shape:
            self._lane.resize(self.shape)
            self._laid_out = self.shape

    def _let_in(self, turn: Turn) -> None:
        newcomers, self._newcomers = self._newcomers, []
        for together in filter(None, newcomers):
            try:
                encoded = self._runtime.encode([ticket.request.source for ticket in together])
            except Exception as error:
                turn.refused += tuple((ticket, error) for ticket in together)
                continue
            self._lane.join(encoded, range(len(together)))
            for ticket in together:
                self._search.join(ticket.options)
                ticket.steps -= self._steps  # counted when it leaves, and not at every step
                if ticket.first_token_s is None:
                    self._unheard.append(ticket)
            turn.encoded += (together,)
            turn.encoded_cells += encoder_cells([ticket.source_tokens for ticket in together], self._runtime.pads_sources)

    def _step(self) -> list[int]:
        """Decode one token in every row; the groups that are done, highest first."""
        search, greedy, most = self._search, self._greedy, self._runtime.max_candidates
        self._steps += 1
        self._target += 1
        if greedy is not None and greedy.takes_best:  # most steps of greedy searches
            follows = greedy.follows_best  # then nothing has to be said to the model
            best = self._lane.step_on() if follows else self._lane.step(search.tokens, search.positions, search.parents, 1)
            done = greedy.say_best(best.tokens[:, 0].tolist(), best.log_probs[:, 0].tolist())
            if done is not None:
                return done
            # Somebody's best token is forbidden, which is rare: the same step again, with more to choose from.
        wanted = _rounded(search.candidates, search.choices if most is None else most)
        best = self._lane.step(search.tokens, search.positions, search.parents, wanted)
        return search.advance(best.tokens, best.log_probs, best.logits)

    def _note_first_tokens(self, now: float) -> None:
        """Whoever has been fed its prompt has just said its first token."""
        if self._unheard:
            for ticket in self._unheard:
                if ticket.steps + self._steps >= ticket.prompt_tokens:
                    ticket.first_token_s = now
            self._unheard = [ticket for ticket in self._unheard if ticket.first_token_s is None]


def _rounded(candidates: int, most: int) -> int:
    """A few more than needed where the number would change at every step, and with it the shape of what comes back."""
    return min(candidates if candidates <= _FEW_CANDIDATES else -(-candidates // 16) * 16, most)
