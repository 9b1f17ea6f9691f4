"""Continuous batching: all active sequences are decoded together; they join and leave at every step."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

from dragoman.errors import Cancelled, DeadlineExceeded, RequestError, ServerError
from dragoman.search import Hypothesis
from dragoman.serving.engine.admission import AdmissionCheck
from dragoman.serving.engine.batch import DecodingBatch
from dragoman.serving.engine.counters import Counters, Gauges
from dragoman.serving.engine.events import Event, Finished, Progress, SessionReply, as_request_error
from dragoman.serving.engine.forced_decoding import ForcedDecoding
from dragoman.serving.engine.limits import EngineLimits, ModelFacts
from dragoman.serving.engine.runtime import Runtime
from dragoman.serving.engine.scheduler import Scheduler
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.sessions import Sessions
from dragoman.serving.engine.worker_pool import Work, WorkerPool

__all__ = ["Engine"]

_LONGEST_WAIT_S = 1.0
_EXPIRE_SESSIONS_S = 1.0
_STUCK_S = 1.0
"""A quantum is over after a twentieth of a second and the call that runs then; a model whose calls are slow has longer …"""
_STUCK_CALLS = 20
"""… as many of its slowest calls."""


class Engine:
    """Continuous batching. One thread owns it: `submit` and `cancel` between calls of `step`, which returns events.

    Every submitted sequence gets exactly one Finished, with the result that it would get alone. If the runtime is fastest
    with several calls at once, batches work in threads of their own, and `step` returns what has happened since the last
    call (use `wait`).
    """

    def __init__(
        self,
        runtime: Runtime,
        model: ModelFacts,
        limits: EngineLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.limits = limits or EngineLimits()
        self.counters = Counters()
        self.sessions = Sessions(runtime, model, self.limits, clock)
        self._forced = ForcedDecoding(runtime, model, self.limits.max_queue_requests, self.limits.encode_tokens_per_step)
        self.can_enforce_phrases = runtime.can_score_tokens
        self.words = model.words
        self._check = AdmissionCheck(self.limits, model, runtime)
        self._scheduler = Scheduler(runtime, model, self.limits, self.counters, self._recall)
        self._runtime = runtime
        self._workers = WorkerPool(self._scheduler.calls_at_once, clock)
        self._active: set[Sequence] = set()
        self._leaving: dict[Sequence, RequestError] = {}  # why each is to be dropped
        self._deadlines: list[tuple[float, int, Sequence]] = []
        self._numbers = itertools.count()  # orders equal deadlines
        self._events: list[Event] = []  # since the last step
        self._expire_at_s = 0.0
        self.slowest_call_s = 0.0
        """Of the model's recent calls: it distinguishes a hang from a slow model."""

    # What callers do.

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; InvalidRequest when it can never run, Overloaded when there is no room for it now."""
        if sequence.arrived_s is None:
            sequence.arrived_s = self._clock()
        if sequence in self._active or sequence.ended_s is not None:
            raise ServerError("a sequence can be submitted once only")
        self._check(sequence)
        self._forced.check(sequence)
        if sequence.is_search:
            self._scheduler.waiting.put(sequence)
        else:
            self._forced.check_room()
            self._forced.add(sequence)
        self._active.add(sequence)
        if sequence.deadline_s is not None:
            heapq.heappush(self._deadlines, (sequence.deadline_s, next(self._numbers), sequence))

    def check_queue(self, entering: int) -> None:
        """Overloaded when these many more would fill the queue; called before anything is tokenised."""
        self._scheduler.waiting.check_room(entering)

    def queue_room(self, entering: int) -> tuple[int, float]:
        """How many sequences fit into the queue after these many more, and the seconds after which a refused caller may
        retry.
        """
        waiting = self._scheduler.waiting
        return waiting.room(entering), waiting.retry_after_s()

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence's work at the next step; nothing happens when it has ended already."""
        if sequence in self._active:
            self._leaving.setdefault(sequence, Cancelled("the caller went away"))

    @property
    def can_force(self) -> bool:
        """Whether the model has forced decoding: without it, sequences with `forcing` are refused."""
        return self._forced.is_possible

    @property
    def busy(self) -> bool:
        """Whether `step` has work, now or later."""
        return bool(self._active) or self.sessions.has_work or self.sessions.at_work

    def step(self) -> list[Event]:
        """Collect what has finished, drop cancelled and expired sequences, admit new ones, decode one token in every row."""
        now = self._clock()
        for work in self._workers.take_finished():
            self._collect(work)
        self._drop_cancelled_and_expired(now)
        if len(self._scheduler.waiting):
            self._scheduler.admit(now)
        more_to_do = False
        for batch in self._scheduler.batches_to_step():
            self._scheduler.make_room(batch)
            if len(batch) and not batch.at_work:
                self._workers.begin(batch, self._scheduler.steps_for(batch), self._scheduler.is_alone(batch))
                more_to_do |= self._collect_if_done(batch)
        if self.sessions.has_work and not self.sessions.at_work:
            self._workers.begin(self.sessions, max_steps=1 << 20, alone=False)
            more_to_do |= self._collect_if_done(self.sessions)
        if len(self._forced) and not self._forced.at_work:
            self._workers.begin(self._forced, max_steps=1 << 20, alone=self._scheduler.is_empty)
            more_to_do |= self._collect_if_done(self._forced)
        if more_to_do and self.busy:
            self._workers.wake()  # nothing else wakes it
        events, self._events = self._events, []
        return events

    def wait(self) -> None:
        """Block until `step` has something to do; returns at once unless batches work in threads of their own."""
        if self.busy:
            self._workers.wait(self.timeout_s(_LONGEST_WAIT_S))

    def timeout_s(self, longest_s: float) -> float:
        """How long `step` need not be called while `wakeup_fd` is not readable: until a deadline, or `longest_s`."""
        if not self.busy:
            return longest_s
        if self._workers.wakeup_fd is None:
            return 0.0
        return min(max(self._deadlines[0][0] - self._clock(), 0.0), longest_s) if self._deadlines else longest_s

    @property
    def wakeup_fd(self) -> int | None:
        """A file descriptor that becomes readable when `step` has something to do; None without threads."""
        return self._workers.wakeup_fd

    def close(self) -> None:
        """End the threads, if there are any; the engine can't be used after that."""
        self._workers.close()

    # What a step does.

    def _collect_if_done(self, work: Work) -> bool:
        """Collect work that ran in this thread; False when a worker has it."""
        if work.at_work:
            return False
        self._collect(work)
        return True

    def _collect(self, work: Work) -> None:
        if work is self.sessions:
            self._events += [SessionReply(call) for call in self.sessions.end_quantum()]
        elif work is self._forced:
            for sequence in self._forced.end_quantum():
                self._finish(sequence, sequence.hypotheses, self._leaving.get(sequence) or sequence.error)
        elif isinstance(work, DecodingBatch):
            self._collect_batch(work)

    def _collect_batch(self, batch: DecodingBatch) -> None:
        """Collect what a batch did in its quantum, and the results of sequences that are done."""
        quantum = batch.end_quantum()
        self.counters.take(quantum)
        self._scheduler.note(batch, quantum)
        call_s = (quantum.seconds - quantum.encode_s) / max(quantum.steps, 1)
        self.slowest_call_s = max(call_s, quantum.encode_s, 0.99 * self.slowest_call_s)
        for sequence, error in quantum.failed:
            self._finish(sequence, error=as_request_error(error))
        if quantum.error is not None:
            self._scheduler.batches.remove(batch)
            for sequence in batch.sequences:
                self._finish(sequence, error=as_request_error(quantum.error))
            return
        for index, sequence in enumerate(batch.sequences) if batch.streams else ():
            if sequence.stream and index not in quantum.done:
                self._report_progress(sequence, batch.decided(index))
        for index in quantum.done:
            sequence, hypotheses = batch.sequences[index], batch.hypotheses(index)
            encoded = batch.encoded(index) if sequence.forcing is not None and self._forced.keeps(sequence) else None
            batch.leave(sequence)
            if sequence in self._leaving:
                self._finish(sequence, error=self._leaving[sequence])
                continue
            if sequence.stream:
                self._report_progress(sequence, hypotheses[0].tokens)
            if sequence.forcing is None:
                self._finish(sequence, hypotheses)
            else:
                sequence.hypotheses = hypotheses
                self._forced.add(sequence, encoded)
        if quantum.done:
            self._scheduler.trim()

    def _drop_cancelled_and_expired(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, sequence = heapq.heappop(self._deadlines)
            if sequence in self._active:
                self._leaving.setdefault(sequence, DeadlineExceeded("the time the caller gave has passed"))
        for sequence, error in list(self._leaving.items()):
            holder = self._forced if sequence in self._forced else self._scheduler
            if holder.remove(sequence):
                self._finish(sequence, error=error)
        if now >= self._expire_at_s and not self.sessions.at_work:
            self._expire_at_s = now + _EXPIRE_SESSIONS_S
            self.sessions.expire(now)

    def _recall(self) -> None:
        """Wait until no batch is within a quantum."""
        working = [batch for batch in self._scheduler.batches if batch.at_work]
        for batch in working:
            batch.recalled = True
        while any(batch.at_work for batch in working):
            self._workers.wait(None)
            for work in self._workers.take_finished():
                self._collect(work)
        self._workers.wake()  # they wait for the next step

    def _report_progress(self, sequence: Sequence, decided: tuple[int, ...]) -> None:
        new, sequence.streamed = decided[sequence.streamed :], max(sequence.streamed, len(decided))
        if new:
            self._events.append(Progress(sequence, new))

    def _finish(
        self, sequence: Sequence, hypotheses: tuple[Hypothesis, ...] = (), error: RequestError | None = None
    ) -> None:
        sequence.ended_s = now = self._clock()
        sequence.hypotheses, sequence.error = hypotheses, error
        self._active.discard(sequence)
        self._leaving.pop(sequence, None)
        self._scheduler.waiting.note_end(now)
        self._events.append(Finished(sequence))

    # What monitoring reads.

    @property
    def is_lost(self) -> bool:
        """Whether the device of the model has failed for good."""
        return self._runtime.is_lost

    @property
    def is_stuck(self) -> bool:
        """Whether a call does not return from its thread. (Without threads, `step` itself would not return.)"""
        limit_s = max(_STUCK_S, _STUCK_CALLS * self.slowest_call_s)
        now = self._clock()
        everything: list[Work] = [*self._scheduler.batches, self.sessions, self._forced]
        return any(work.at_work and now - work.began_s > limit_s for work in everything)

    def gauges(self) -> Gauges:
        scheduler = self._scheduler
        batches = scheduler.batches
        return Gauges(
            queued_requests=len(scheduler.waiting),
            running_requests=sum(map(len, batches)),
            running_rows=sum(batch.rows for batch in batches),
            max_rows=self.limits.max_rows,
            calls_at_once=scheduler.calls_at_once,
            kv_slots_reserved=sum(sum(batch.slots) for batch in batches),
            kv_slots_limit=sum(scheduler.slots_limit),
            sessions=len(self.sessions),
        )
