"""A batch: sequences of one beam width that are decoded together, with their searches and caches in the same order.

A batch works in quanta. Between quanta the engine owns it: sequences join and leave, slots are reserved. During a quantum
the thread that runs it owns it, and the engine reads only what is marked as readable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from dragoman.search import Hypothesis, SearchBatch
from dragoman.search.greedy import GreedyBatch
from dragoman.serving.engine.runtime import Decoder, Encoded, Runtime
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.slots import KVSlots, Usage, bucket, encoder_slots
from dragoman.serving.engine.worker_pool import Longest

__all__ = ["DecodingBatch", "Quantum"]

_FEW_CANDIDATES = 2 * 16 + 4
"""What a wide beam needs without rules that depend on its history."""


@dataclass(slots=True)
class Quantum:
    """What a batch did in its quantum."""

    steps: int = 0
    rows: int = 0
    seconds: float = 0.0
    done: list[int] = field(default_factory=list)
    """Indices of sequences that have come to their end, highest first."""
    encoder_calls: int = 0
    encoded_tokens: int = 0
    encoded_slots: int = 0
    """Token positions that were computed, padding included."""
    encode_s: float = 0.0
    failed: list[tuple[Sequence, Exception]] = field(default_factory=list)
    """New sequences that could not be encoded."""
    error: Exception | None = None
    """The batch can't be trusted any more."""


class DecodingBatch:
    """Index i of the search, of the decoder and of `sequences` is always the same sequence."""

    def __init__(
        self, search: SearchBatch, decoder: Decoder, runtime: Runtime, share: int, *, takes_turns: bool = False
    ) -> None:
        self._search, self._decoder, self._runtime = search, decoder, runtime
        self.takes_turns = takes_turns  # takes turns with other batches whose steps consider very many tokens
        self.share = share  # sequences that it may hold
        self._greedy = search if isinstance(search, GreedyBatch) else None
        self.width = decoder.width
        self.sequences: list[Sequence] = []  # the last ones may be new: not yet in the search
        self.streams = 0  # of the sequences, those whose progress is reported
        self.held = 0  # steps that new sequences have waited for others, to be encoded together
        self.at_work = False
        self.began_s = 0.0  # of its quantum, while it runs
        self.recalled = False  # the engine requests it back after the current step
        self._newcomers: list[list[Sequence]] = []  # the sequences of each list are encoded together
        self._quantum = Quantum()
        self._step_s = 0.0  # of the last quantum
        self._steps = 0
        self._full_at = sys.maxsize  # the step at which some sequence's reserved slots are full
        self._grown = False  # the decoder does not know of all reserved slots yet
        self._awaiting_first: list[Sequence] = []  # those without a first token
        self._usage: Usage | None = Usage()  # None: sequences have joined or left since

    # At any time.

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def rows(self) -> int:
        return len(self.sequences) * self.width

    @property
    def candidates(self) -> int:
        """How many next tokens its searches consider in a step."""
        return sum(sequence.candidates for sequence in self.sequences)

    @property
    def usage(self) -> Usage:
        """What its sequences have reserved; `sequences` and `reserved` change between quanta only."""
        if self._usage is None:
            self._usage = Usage.of((sequence.source_tokens, sequence.reserved) for sequence in self.sequences)
        return self._usage

    @property
    def slots(self) -> KVSlots:
        return self.usage.slots(self.width, self._runtime.pads)

    @property
    def held_slots(self) -> KVSlots:
        """The slots that it has memory for, used or not."""
        return self._decoder.held_slots

    # Between quanta.

    def add(self, newcomers: list[Sequence]) -> None:
        """Let these sequences begin in the next quantum, encoded together."""
        self._newcomers.append(newcomers)
        for sequence in newcomers:
            sequence.batch = self
            self.sequences.append(sequence)
            self.streams += sequence.stream
            if self._usage is not None:
                self._usage = self._usage.plus(sequence.source_tokens, sequence.reserved)

    def leave(self, sequence: Sequence) -> None:
        self.streams -= sequence.stream
        sequence.batch = None
        if self._usage is not None:
            own = sequence.source_tokens, sequence.reserved
            self._usage = None if self._runtime.pads else self._usage.minus(*own)
        for together in self._newcomers:
            if sequence in together:
                together.remove(sequence)
                self.sequences.remove(sequence)
                return
        index, last = self.sequences.index(sequence), len(self._search) - 1
        self._decoder.leave(index)
        self._search.leave(index)
        self.sequences[index] = self.sequences[last]
        del self.sequences[last]
        sequence.steps += self._steps
        if sequence.first_token_s is None:
            self._awaiting_first.remove(sequence)

    @property
    def is_full(self) -> bool:
        """Whether a sequence needs more slots than it has reserved for the next step."""
        if self._steps >= self._full_at:
            self._find_full()  # the sequence that would have been full may have left
        return self._steps >= self._full_at

    def grow(self) -> None:
        """Reserve more for the sequences that are full; this may exceed the slots that there are."""
        for sequence in self._joined():
            if sequence.full_at <= self._steps and sequence.reserved < sequence.longest:
                before, sequence.reserved = sequence.reserved, min(sequence.longest, bucket(sequence.reserved + 1))
                sequence.full_at += sequence.reserved - before
        self._usage, self._grown = None, True
        self._find_full()

    def steps_within(self, time_s: float) -> int:
        """How many steps as long as those of the last quantum fit into this time; at least one."""
        return max(int(time_s / self._step_s), 1) if self._step_s > 0.0 else 1

    def release(self) -> None:
        """Give unused memory back at once."""
        self._decoder.release(self._most_reserved())

    def end_quantum(self) -> Quantum:
        """The engine owns the batch again."""
        quantum, self._quantum = self._quantum, Quantum()
        self.at_work = self.recalled = False
        for sequence, _ in quantum.failed:
            self.sequences.remove(sequence)
            self.streams -= sequence.stream
            self._usage = None
        if quantum.error is not None:
            for sequence in self._joined():
                sequence.steps += self._steps
        return quantum

    def hypotheses(self, index: int) -> tuple[Hypothesis, ...]:
        return self._search.hypotheses(index)

    def encoded(self, index: int) -> Encoded | None:
        """The encoded source of a sequence, if it is available."""
        return self._decoder.encoded(index)

    def decided(self, index: int) -> tuple[int, ...]:
        return self._search.decided(index)

    # The quantum.

    def run_quantum(self, max_steps: int, longest: Longest, clock: Callable[[], float]) -> None:
        """Encode the new sequences, then decode one token in every row per step, until the engine has something to do."""
        quantum, began_s = self._quantum, clock()
        now_s = began_s
        try:
            with self._runtime.computing:
                if self._grown:
                    self._decoder.reserve(self._most_reserved())
                    self._grown = False
                if self._newcomers:
                    self._encode_newcomers(quantum, clock)
                quantum.rows = len(self._search) * self.width
                while quantum.rows and quantum.steps < max_steps:
                    quantum.done = self._step()
                    quantum.steps += 1
                    now_s = clock()
                    self._note_first_tokens(now_s)
                    if quantum.done or self.recalled or self.streams or self.is_full or now_s - began_s >= longest():
                        break
        except Exception as error:  # any error of a library becomes the error of every sequence here
            quantum.error = error
        quantum.seconds = now_s - began_s
        self._step_s = quantum.seconds / max(quantum.steps, 1)

    def _encode_newcomers(self, quantum: Quantum, clock: Callable[[], float]) -> None:
        newcomers, self._newcomers = self._newcomers, []
        began_s = clock()
        for together in filter(None, newcomers):
            try:
                encoded = self._runtime.encode([sequence.source for sequence in together])
                if any(sequence.shortlist for sequence in together):
                    encoded = replace(encoded, shortlists=[sequence.shortlist for sequence in together])
            except Exception as error:
                quantum.failed += [(sequence, error) for sequence in together]
                continue
            self._decoder.join(encoded, range(len(together)), [sequence.reserved for sequence in together])
            for sequence in together:
                self._search.join(sequence.options)
                sequence.full_at = self._steps + sequence.reserved
                if sequence.reserved < sequence.longest:
                    self._full_at = min(self._full_at, sequence.full_at)
                sequence.steps -= self._steps  # counted when it leaves, and not at every step
                if sequence.first_token_s is None:
                    self._awaiting_first.append(sequence)
            lengths = [sequence.source_tokens for sequence in together]
            quantum.encoder_calls += 1
            quantum.encoded_tokens += sum(lengths)
            quantum.encoded_slots += encoder_slots(lengths, self._runtime.pads)
        self._decoder.reserve(self._most_reserved())
        quantum.encode_s = clock() - began_s

    def _step(self) -> list[int]:
        """Decode one token in every row; the sequences that are done, highest first."""
        search, greedy, most = self._search, self._greedy, self._runtime.max_candidates
        self._steps += 1
        if greedy is not None and greedy.takes_best:  # most steps of greedy searches
            follows = greedy.follows_best  # then the decoder needs no new inputs
            decoder = self._decoder
            best = decoder.step_on() if follows else decoder.step(search.tokens, search.positions, search.parents, 1)
            done = greedy.advance_best(best.tokens[:, 0].tolist(), best.log_probs[:, 0].tolist())
            if done is not None:
                return done
            # A best token is forbidden, which is rare: repeat the step with more candidates.
        wanted = _rounded(search.candidates, search.choices if most is None else most)
        inputs = search.tokens, search.positions, search.parents, wanted
        scored_tokens = search.scored_tokens()
        best = self._decoder.step(*inputs) if scored_tokens is None else self._decoder.step_scoring(*inputs, scored_tokens)
        return search.advance(best.tokens, best.log_probs, best.logits)

    def _note_first_tokens(self, now: float) -> None:
        """A sequence whose prompt has been fed has just generated its first token."""
        if self._awaiting_first:
            for sequence in self._awaiting_first:
                if sequence.steps + self._steps >= sequence.prompt_tokens:
                    sequence.first_token_s = now
            self._awaiting_first = [sequence for sequence in self._awaiting_first if sequence.first_token_s is None]

    def _joined(self) -> Iterable[Sequence]:
        return self.sequences[: len(self._search)]

    def _find_full(self) -> None:
        joined = self.sequences[: len(self._search)]
        growing = (sequence.full_at for sequence in joined if sequence.reserved < sequence.longest)
        self._full_at = min(growing, default=sys.maxsize)

    def _most_reserved(self) -> int:
        return max([sequence.reserved for sequence in self.sequences], default=0)


def _rounded(candidates: int, most: int) -> int:
    """Rounded up, so that the number, and with it the shape of the result, does not change at every step."""
    return min(candidates if candidates <= _FEW_CANDIDATES else -(-candidates // 16) * 16, most)
