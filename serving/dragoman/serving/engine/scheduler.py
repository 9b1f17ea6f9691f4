"""The scheduler: sequences wait in a queue, join batches as slots and rows allow, and are preempted when memory is short."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from dragoman.search import search_batch
from dragoman.serving.engine.batch import DecodingBatch, Quantum
from dragoman.serving.engine.counters import Counters
from dragoman.serving.engine.encode_budget import EncodeBudget
from dragoman.serving.engine.large_share import LargeShare
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.slots import NO_SLOTS, KVSlots, encoder_slots
from dragoman.serving.engine.waiting_queue import Room, WaitingQueue

__all__ = ["Scheduler"]

_FREE_PART = 4
"""New sequences wait until this part of a batch's rows is free: a step costs what its rows cost, so empty ones cost nothing,
and several sources are encoded faster together …"""

_HELD_STEPS = 4
"""… but never longer than so many steps."""

_MANY_STEPS = 1 << 20

Recall = Callable[[], None]


class Scheduler:
    """Batches, one for each beam width and each call that runs at once, and the queue in front of them.

    The batches of one width share its rows evenly once there are too many for one call. Large sequences (a wide beam, a long
    text) leave a quarter of the rows and of the slots to small ones while there are any, so small ones never wait for them.

    Besides the model's work, a step costs as much as the number of candidates that searches consider. Sequences that
    consider very many (phrases, sampling from the whole vocabulary) are in batches of their own, with a bounded number of
    candidates each, and these batches take turns: each step runs one of them beside all other batches.
    """

    def __init__(
        self, runtime: Runtime, model: ModelFacts, limits: EngineLimits, counters: Counters, recall: Recall
    ) -> None:
        """`recall` ends the running quanta, so that every batch can be changed."""
        self._runtime, self._model, self._limits = runtime, model, limits
        self._counters, self._recall = counters, recall
        self.calls_at_once = min(runtime.calls_at_once, limits.max_rows)
        self.waiting = WaitingQueue(limits, runtime.pads)
        self.batches: list[DecodingBatch] = []
        self._has_turns = False  # whether any of them takes turns
        self.slots_limit = limits.kv_slots(model)
        self._large_share = LargeShare(limits.max_rows, self.slots_limit, padded=runtime.pads)
        self._rows_together = min(runtime.rows_together, limits.max_rows)
        self._orders = itertools.count()
        self._encode_budget = EncodeBudget(limits.encode_tokens_per_step // self.calls_at_once)
        self._begins_alone = True  # nothing ran before the sequences that are being admitted

    # What the engine calls.

    def idle_batches(self) -> list[DecodingBatch]:
        """The batches that are not within a quantum."""
        return [batch for batch in self.batches if not batch.at_work]

    def batches_to_step(self) -> list[DecodingBatch]:
        """All idle batches; of those that take turns only the next."""
        idle = self.idle_batches()
        if not self._has_turns:
            return idle
        in_turn = [batch for batch in self.batches if batch.takes_turns and len(batch)]
        found = [batch for batch in idle if not batch.takes_turns]
        if in_turn and not any(batch.at_work for batch in in_turn):
            self.batches.remove(in_turn[0])
            self.batches.append(in_turn[0])
            found.append(in_turn[0])
        return found

    def admit(self, now: float) -> None:
        """Let waiting sequences join batches: a bounded number of tokens each time, so that running ones are not held up."""
        self._large_share.note(now, small_waits=any(not head.is_large for head in self.waiting.heads()))
        self._hold_large()
        self._begins_alone = self.is_empty
        budgets: dict[DecodingBatch, int] = {}
        refused: set[tuple[int, bool, bool]] = set()
        while heads := [head for head in self.waiting.heads() if _kind(head) not in refused]:
            head = heads[0]
            found = self._batch_in_turn(head, budgets) if head.takes_turns else self._ready_batches(head.width)
            ready = [batch for batch in found if budgets.get(batch, 1) > 0]
            newcomers = self._take(head, ready, budgets) if ready else []
            if not newcomers:
                refused.add(_kind(head))
                continue
            for sequence in newcomers:
                sequence.order = next(self._orders)
                if sequence.admitted_s is None:
                    sequence.admitted_s = now

    def make_room(self, batch: DecodingBatch) -> None:
        """Reserve slots for the batch's next steps; if memory is short, preempt the latest sequences."""
        if not batch.is_full:
            return
        batch.grow()
        self._hold_large()
        if self.reserved_slots().fit(self.slots_limit):
            return
        self._recall()
        while len(running := self._running()) > 1 and not self.reserved_slots().fit(self.slots_limit):
            self._preempt(running)
        self._release()

    def note(self, batch: DecodingBatch, quantum: Quantum) -> None:
        """Record what a batch did: steps for which new sequences still waited, and the time of encoding."""
        if len(self.waiting) and quantum.rows < batch.share * batch.width:
            batch.held += quantum.steps
        self._encode_budget.note(quantum.encoded_slots, quantum.encode_s)

    def trim(self) -> None:
        """Give back memory that no sequence uses if more is held than promised, and remove the batches of finished turns."""
        if self._has_turns:
            self.batches = [batch for batch in self.batches if len(batch) or not batch.takes_turns]
            self._has_turns = any(batch.takes_turns for batch in self.batches)
        if not self._held().fit(self.slots_limit):
            self._release()

    def steps_for(self, batch: DecodingBatch) -> int:
        """How many steps the batch's next quantum may have: few when new sequences wait there for others."""
        if batch.takes_turns and not self._has_no_others(batch):
            return 1
        if len(self.waiting) and len(batch) < batch.share:
            return max(_HELD_STEPS - batch.held, 1)
        return _MANY_STEPS

    def is_alone(self, batch: DecodingBatch) -> bool:
        """Whether every thread can help this batch, because the others are empty."""
        return self._rows_together > 0 and self._has_no_others(batch)

    def _has_no_others(self, batch: DecodingBatch) -> bool:
        return all(other is batch or not len(other) for other in self.batches)

    def remove(self, sequence: Sequence) -> bool:
        """Remove a sequence wherever it is; False when its batch is within a quantum, which is then recalled."""
        batch = sequence.batch
        if batch is None:
            self.waiting.remove(sequence)
        elif batch.at_work:
            batch.recalled = True
            return False
        else:
            batch.leave(sequence)
        return True

    # Admission.

    def _ready_batches(self, width: int) -> list[DecodingBatch]:
        """The batches that new sequences of this width may join now, the best first; running ones are recalled for them."""
        own = [batch for batch in self.batches if batch.width == width and not batch.takes_turns]
        while len(own) < self.calls_at_once:
            own.append(self._open(width))
        if few := [batch for batch in own if 0 < batch.rows < self._rows_together]:
            own = [max(few, key=len)]  # the others have a call to themselves, or run empty
        ready = []
        for batch in own:
            free = batch.share - len(batch)
            has_much_room = free > 0 and _FREE_PART * free >= batch.share
            if batch.at_work:
                batch.recalled = batch.recalled or has_much_room
            elif has_much_room or (free > 0 and batch.held >= _HELD_STEPS):
                ready.append(batch)
        return sorted(ready, key=len)

    def _batch_in_turn(self, head: Sequence, budgets: dict[DecodingBatch, int]) -> list[DecodingBatch]:
        """The batch that this sequence may join, or a new one; one at a time, because it takes memory."""
        most = self._limits.step_candidates
        own = [batch for batch in self.idle_batches() if batch.takes_turns and batch.width == head.width]
        for batch in own:
            if not len(batch) or (len(batch) < batch.share and batch.candidates + head.candidates <= most):
                return [batch]
        if any(batch.takes_turns for batch in budgets) or self.rows_for(head.is_large) < head.width:
            return []
        return [self._open(head.width, max(min(most // head.candidates, self._limits.max_rows // head.width), 1))]

    def _take(self, head: Sequence, ready: list[DecodingBatch], budgets: dict[DecodingBatch, int]) -> list[Sequence]:
        """Sequences for the best of the ready batches, beginning with `head`; none when `head` does not fit."""
        batch = ready[0]
        budget = budgets[batch] if batch in budgets else self._encode_budget.tokens(self._begins_alone)
        fair = -(-len(self.waiting) // len(ready))
        rows = min(self.rows_for(head.is_large), min(fair, batch.share - len(batch)) * batch.width)
        room = Room(
            batch,
            rows,
            self._slots_for(head, batch),
            padded=self._runtime.pads,
            alone=self.is_empty,
            step_candidates=self._limits.step_candidates,
        )
        newcomers = self.waiting.take(head, room, budget)
        if newcomers:
            lengths = [sequence.source_tokens for sequence in newcomers]
            budgets[batch] = budget - encoder_slots(lengths, self._runtime.pads)
            batch.add(newcomers)
            batch.held = 0
        return newcomers

    def rows_for(self, large: bool) -> int:
        """Rows that more sequences of this kind may take now."""
        most = self._limits.max_rows
        free = most - sum(batch.rows for batch in self.batches)
        waiting_large = self.waiting.large_width
        if not waiting_large:
            return free
        share = self._large_share.rows(self._large(), waiting_large)
        if large:
            return min(free, share)
        # Rows come together for a large sequence that may have them.
        return free - waiting_large if waiting_large <= share else free

    def _slots_for(self, head: Sequence, batch: DecodingBatch) -> KVSlots:
        """Slots that the batch may use with this sequence and others like it."""
        beside = self.slots_beside(batch)
        if not (head.is_large and self._large_share.is_limited and (large := self._large())):
            return beside  # one large sequence may run in any case
        more = batch.slots.plus(self._large_share.slots(large))
        return KVSlots(min(beside.own, more.own), min(beside.cross, more.cross))

    def slots_beside(self, batch: DecodingBatch) -> KVSlots:
        """Slots that the other batches leave."""
        own, cross = self.slots_limit
        for other in self.batches:
            if other is not batch:
                slots = other.slots
                own, cross = own - slots.own, cross - slots.cross
        return KVSlots(own, cross)

    @property
    def is_empty(self) -> bool:
        return not any(len(batch) for batch in self.batches)

    def _open(self, width: int, share_in_turn: int | None = None) -> DecodingBatch:
        search = search_batch(width, self._model, self._model.target_vocabulary, self._model.choices, self._model.words)
        share = share_in_turn
        if share is None:
            share = max(-(-(self._limits.max_rows // width) // self.calls_at_once), self._rows_together // width, 1)
        decoder, takes_turns = self._runtime.decoder(width, share), share_in_turn is not None
        self._has_turns |= takes_turns
        self.batches.append(DecodingBatch(search, decoder, self._runtime, share, takes_turns=takes_turns))
        return self.batches[-1]

    # Memory.

    def _hold_large(self) -> None:
        """Preempt large sequences, the latest first, that have grown into the slots kept for small ones."""
        if not self._large_share.is_limited or self._large_fit(self._large()):
            return
        self._recall()
        while len(large := self._large()) > 1 and not self._large_fit(large):
            self._preempt(large)

    def _large_fit(self, large: list[Sequence]) -> bool:
        return NO_SLOTS.fit(self._large_share.slots(large))

    def _preempt(self, running: list[Sequence]) -> None:
        latest = max(running, key=_precedence)
        if latest.batch is not None:
            latest.batch.leave(latest)
        self.waiting.put_back(latest)
        self._counters.preemptions += 1

    def _large(self) -> list[Sequence]:
        return [sequence for sequence in self._running() if sequence.is_large]

    def _running(self) -> list[Sequence]:
        return [sequence for batch in self.batches for sequence in batch.sequences]

    def reserved_slots(self) -> KVSlots:
        return _sum(batch.slots for batch in self.batches)

    def _held(self) -> KVSlots:
        return _sum(batch.held_slots for batch in self.batches)

    def _release(self) -> None:
        for batch in self.idle_batches():
            batch.release()


def _kind(sequence: Sequence) -> tuple[int, bool, bool]:
    return sequence.width, sequence.is_large, sequence.takes_turns


def _sum(slots: Iterable[KVSlots]) -> KVSlots:
    total = NO_SLOTS
    for each in slots:
        total = total.plus(each)
    return total


def _precedence(sequence: Sequence) -> tuple[bool, bool, int]:
    return sequence.priority == "batch", sequence.is_large, sequence.order
