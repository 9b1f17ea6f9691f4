"""The queue in front of the batches: bounded, interactive requests first, and large sequences never delay small ones."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

from dragoman.counts import counted
from dragoman.errors import Overloaded
from dragoman.serving.engine.batch import DecodingBatch
from dragoman.serving.engine.limits import EngineLimits
from dragoman.serving.engine.sequence import Priority, Sequence
from dragoman.serving.engine.slots import KVSlots, encoder_slots

__all__ = ["Room", "WaitingQueue"]

_BEFORE_ONE_BATCH = 8
"""Batch work is never starved: after so many interactive sequences in a row, one of it goes first."""

_BEFORE_ONE_LARGE = 8
"""The same for large sequences behind small ones."""

_SIMILAR = 4
"""Sources that differ by so few tokens are encoded together even if padded: a call costs more than their padding."""

_WINDOW = 64
"""How many sequences are searched for some that can be encoded together."""

_Line = dict[Sequence, None]  # in order of arrival; any of them may leave


class Room:
    """The rows, slots and candidates that a batch has left, counting the sequences that `take` has accepted."""

    def __init__(
        self, batch: DecodingBatch, rows: int, slots: KVSlots, *, padded: bool, alone: bool, step_candidates: int
    ) -> None:
        """`alone`: nothing else runs. `step_candidates`: the limit of a batch that takes turns."""
        self._rows, self._slots, self._padded, self._alone = rows, slots, padded, alone
        self._usage, self._width = batch.usage, batch.width
        self._takes_turns = batch.takes_turns
        self._candidates = step_candidates - batch.candidates if batch.takes_turns else 0

    def take(self, sequence: Sequence) -> bool:
        """Whether there is room for this sequence, too; if so, it is counted."""
        usage = self._usage.plus(sequence.source_tokens, sequence.reserved)
        fits = usage.slots(self._width, self._padded).fit(self._slots) and self._width <= self._rows
        if not (fits or self._alone):
            return False
        if self._takes_turns and self._usage.sequences and sequence.candidates > self._candidates:
            return False
        self._alone = False  # a sequence that is alone fits: it was checked when it was submitted
        self._usage = usage
        self._rows -= self._width
        self._candidates -= sequence.candidates
        return True


class WaitingQueue:
    """Sequences that are not in a batch, in four lines: interactive and batch, small and large."""

    def __init__(self, limits: EngineLimits, padded: bool) -> None:
        self._limits, self._padded = limits, padded
        self._lines: dict[tuple[Priority, bool], _Line] = {
            (priority, large): {} for priority in ("interactive", "batch") for large in (False, True)
        }
        self._since_batch = self._since_large = 0  # sequences taken since one of this line was
        self._ends_s: deque[float] = deque(maxlen=64)  # when the last ones ended
        self.tokens = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, sequence: Sequence) -> None:
        """Overloaded when there is no room."""
        self.check_room()
        if self.tokens + sequence.source_tokens > self._limits.max_queue_tokens and self._count:
            raise Overloaded(f"the queue is full ({self.tokens} source tokens)", self.retry_after_s())
        self._line(sequence)[sequence] = None
        self._count += 1
        self.tokens += sequence.source_tokens

    def check_room(self, entering: int = 0) -> None:
        """Overloaded when there is no room for another sequence, however short, after `entering` others."""
        if (count := self._count + entering) >= self._limits.max_queue_requests:
            raise Overloaded(f"the queue is full ({counted(count, 'request')})", self.retry_after_s())

    def room(self, entering: int = 0) -> int:
        """How many more sequences fit after `entering` others, if they are as long as those that wait."""
        places = self._limits.max_queue_requests - self._count
        if self.tokens:
            places = min(places, (self._limits.max_queue_tokens - self.tokens) * self._count // self.tokens)
        return max(places - entering, 0)

    def put_back(self, sequence: Sequence) -> None:
        """Put a preempted sequence at the front. Never refused."""
        line = self._line(sequence)
        others = list(line)
        line.clear()
        line.update(dict.fromkeys([sequence, *others]))
        self._count += 1
        self.tokens += sequence.source_tokens

    def remove(self, sequence: Sequence) -> None:
        del self._line(sequence)[sequence]
        self._count -= 1
        self.tokens -= sequence.source_tokens

    def heads(self) -> list[Sequence]:
        """The first sequence of each line, the one with the highest priority first. If one does not fit, the next may go."""
        lines = [line for line, held in self._lines.items() if held]
        if len(lines) < 2:
            return [next(iter(self._lines[line])) for line in lines]
        first_batch = self._since_batch >= _BEFORE_ONE_BATCH
        first_large = self._since_large >= _BEFORE_ONE_LARGE
        lines.sort(key=lambda line: ((line[0] == "batch") != first_batch, line[1] != first_large))
        return [next(iter(self._lines[line])) for line in lines]

    @property
    def large_width(self) -> int:
        """Rows that the next large sequence needs; 0 when none waits."""
        heads = (next(iter(line)) for (_, large), line in self._lines.items() if large and line)
        return max((head.width for head in heads), default=0)

    def take(self, first: Sequence, room: Room, budget: int) -> list[Sequence]:
        """`first` and others of its line that there is `room` for and that can be encoded together within `budget` tokens;
        if sources are padded, those of about the same length.
        """
        if not room.take(first):
            return []
        taken, lengths = [first], [first.source_tokens]
        self._took(first)
        near: Iterable[Sequence] = itertools.islice(self._line(first), _WINDOW)
        others = [one for one in near if (one.width, one.takes_turns) == (first.width, first.takes_turns)]
        if self._padded:
            others.sort(key=lambda one: abs(one.source_tokens - first.source_tokens))
        for sequence in others:
            lengths.append(sequence.source_tokens)
            too_different = self._padded and max(lengths) - min(lengths) > max(_SIMILAR, max(lengths) // 4)
            if too_different or encoder_slots(lengths, self._padded) > budget or not room.take(sequence):
                break
            taken.append(sequence)
            self._took(sequence)
        return taken

    def note_end(self, now: float) -> None:
        """A sequence has ended: the retry hint is derived from how often that happens."""
        self._ends_s.append(now)

    def retry_after_s(self) -> float:
        """The time after which a quarter of the queue should be gone."""
        if len(self._ends_s) < 2 or self._ends_s[-1] <= self._ends_s[0]:
            return 0.5
        per_sequence_s = (self._ends_s[-1] - self._ends_s[0]) / (len(self._ends_s) - 1)
        return min(max(per_sequence_s * self._count / 4, 0.05), 30.0)

    def _line(self, sequence: Sequence) -> _Line:
        return self._lines[sequence.priority, sequence.is_large]

    def _took(self, sequence: Sequence) -> None:
        self._since_batch = 0 if sequence.priority == "batch" else self._since_batch + 1
        self._since_large = 0 if sequence.is_large else self._since_large + 1
        self.remove(sequence)
