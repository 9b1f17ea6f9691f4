"""Forced decoding: the model reads given targets and returns log-probabilities and alignments.

A target is read in slices of a few dozen tokens, one model call each, so that batches decode in between. Targets come from a
caller, or are the hypotheses of a sequence whose search has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest, Overloaded, ServerError
from dragoman.serving.engine.events import as_request_error
from dragoman.serving.engine.limits import ModelFacts
from dragoman.serving.engine.runtime import Encoded, ForcedPiece, ForcedRuntime, Runtime
from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.worker_pool import Longest

__all__ = ["ForcedDecoding", "ForcedTarget", "Forcing"]

Slices = Generator[None, None, None]

_WAITING_PER_SLICE = 8
_QUANTUM_S = 0.002
"""The longest quantum: batches wait for its slices so long, or for one slice if that takes longer."""

MISSING = (
    "this bundle has nothing to score and align with; export the checkpoint again with this version of dragoman, or, for "
    "--device tensorrt, run `dragoman build-engines` without --without-scores"
)


@dataclass(frozen=True, slots=True)
class Forcing:
    """What is requested of targets. Alignments are always returned, and cost least if nothing else is requested.

    `targets`: with their end tokens; None for the hypotheses of the sequence itself, or only its best one (`best_only`).
    `scores`: the log-probability of each token. `alternatives`: how many of the best tokens at each position of a target.
    """

    targets: tuple[tuple[int, ...], ...] | None = None
    best_only: bool = False
    scores: bool = True
    alternatives: int = 0

    @property
    def needs_logits(self) -> bool:
        """Whether log-probabilities are needed."""
        return self.scores or self.alternatives > 0


@dataclass(frozen=True, slots=True)
class ForcedTarget:
    """The result for a target. Log-probabilities are present only if they were requested; best tokens come first."""

    tokens: tuple[int, ...]
    log_probs: npt.NDArray[np.float32]  # (tokens,)
    alignment: npt.NDArray[np.float32]  # (tokens, source tokens): attention of each token to the source
    best_tokens: npt.NDArray[np.int64]  # (tokens, alternatives)
    best_log_probs: npt.NDArray[np.float32]  # (tokens, alternatives)


class ForcedDecoding:
    """Sequences whose targets are read; a quantum's unit of work is one call of the model.

    Their requests take turns, one call each, so that a small request does not wait for a large one.
    """

    def __init__(self, runtime: Runtime, model: ModelFacts, most: int, most_kept: int) -> None:
        """At most `most` targets of callers wait; hypotheses are always accepted, as their sequences have run already.

        Sources need not be encoded again: the encoded sources of waiting hypotheses are kept, up to this many tokens.
        """
        self._runtime, self._model, self._most, self._most_kept = runtime, model, most, most_kept
        self._work: dict[Sequence, Slices] = {}
        self._kept: dict[Sequence, int] = {}  # source tokens of those whose encoded sources are kept
        self._done: list[Sequence] = []
        self._turns: dict[object, int] = {}  # that each request has had, or would have had
        self.at_work = False
        self.began_s = 0.0

    def __len__(self) -> int:
        return len(self._work)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._work

    @property
    def is_possible(self) -> bool:
        """Whether the bundle has the graph for forced decoding."""
        return self._runtime.forced is not None

    # Between quanta.

    def check(self, sequence: Sequence) -> None:
        """InvalidRequest when the bundle can not provide what is requested."""
        forcing, model = sequence.forcing, self._model
        if forcing is None:
            return
        forced = self._runtime.forced
        if forced is None:
            raise InvalidRequest(MISSING)
        most = min(forced.max_candidates or model.choices, model.choices)
        if forcing.alternatives > most:
            raise InvalidRequest(f"alternatives={forcing.alternatives} is more than this model gives at a place ({most})")
        for target in forcing.targets or ():
            if not target:
                raise InvalidRequest("the target has no tokens")
            if len(target) > model.max_target_tokens:
                raise InvalidRequest(
                    f"the target has {len(target)} tokens, the model takes {model.max_target_tokens}; score its sentences "
                    "one by one"
                )
            if not 0 <= min(target) <= max(target) < model.target_vocabulary:
                raise InvalidRequest(f"a target token is outside the vocabulary of {model.target_vocabulary}")

    def check_room(self) -> None:
        """Overloaded when there is no room for the target of another caller."""
        if len(self._work) >= self._most:
            raise Overloaded(f"the queue is full ({len(self._work)} targets to read)", 0.5)

    def keeps(self, sequence: Sequence) -> bool:
        """Whether there is room to keep its encoded source."""
        return sum(self._kept.values()) + sequence.source_tokens <= self._most_kept

    def add(self, sequence: Sequence, encoded: Encoded | None = None) -> None:
        """Read its targets; `end_quantum` returns it. `encoded`: its source, if that need not be encoded again."""
        if self._runtime.forced is None or sequence.forcing is None:
            raise ServerError("a sequence without targets to read")
        if encoded is not None:
            self._kept[sequence] = sequence.source_tokens
        if sequence.request not in self._turns:
            self._turns[sequence.request] = min(self._turns.values(), default=0)
        self._work[sequence] = self._reading(sequence, self._runtime.forced, encoded)

    def remove(self, sequence: Sequence) -> bool:
        """Forget a sequence; False while a quantum runs, which may be working on it."""
        if self.at_work:
            return False
        self._forget(sequence)
        return True

    def end_quantum(self) -> list[Sequence]:
        """The sequences that are done, with their results or errors."""
        self.at_work = False
        done, self._done = self._done, []
        for sequence in done:
            self._forget(sequence)
        return done

    def _forget(self, sequence: Sequence) -> None:
        del self._work[sequence]
        self._kept.pop(sequence, None)
        if all(other.request is not sequence.request for other in self._work):
            del self._turns[sequence.request]

    # The quantum.

    def steps_within(self, time_s: float) -> int:  # noqa: ARG002 - how long one takes is not known
        """One slice, or more if many sequences wait: a step of a full batch ends several sequences, and their encoded
        sources are kept only until then.
        """
        return max(len(self._work) // _WAITING_PER_SLICE, 1)

    def run_quantum(self, max_steps: int, longest: Longest, clock: Callable[[], float]) -> None:
        """Run slices of the requests in turn, until the time is up."""
        began_s, steps = clock(), 0
        with self._runtime.computing:
            while (sequence := self._next()) is not None:
                if steps >= max_steps or (steps and clock() - began_s >= max(longest(), _QUANTUM_S)):
                    return
                steps += 1
                self._turns[sequence.request] += 1
                if sequence.admitted_s is None:  # there was no search before
                    sequence.admitted_s = clock()
                if self._advance(sequence, self._work[sequence]):
                    self._done.append(sequence)

    def _next(self) -> Sequence | None:
        """The first sequence of the request that has had the fewest turns."""
        first: dict[object, Sequence] = {}
        for sequence in list(self._work):  # others join meanwhile
            if sequence.request not in first and sequence not in self._done:
                first[sequence.request] = sequence
        return min(first.values(), key=lambda sequence: self._turns[sequence.request], default=None)

    @staticmethod
    def _advance(sequence: Sequence, slices: Slices) -> bool:
        """Do one slice; True when the sequence is done."""
        try:
            next(slices)
        except StopIteration:
            return True
        except Exception as error:  # any error of a library becomes the result
            sequence.error = as_request_error(error)
            return True
        return False

    def _reading(self, sequence: Sequence, forced: ForcedRuntime, encoded: Encoded | None) -> Slices:
        forcing, results = sequence.forcing, list[ForcedTarget]()
        if forcing is None:
            return
        if encoded is None:
            encoded = self._runtime.encode([sequence.source])
            yield
        encoded = replace(encoded, shortlists=[sequence.shortlist])
        start = self._model.decoder_start if sequence.options.decoder_start is None else sequence.options.decoder_start
        for target in _targets(sequence, forcing):
            # A token's attention may be that of the row in which it is fed: then the last one has to be fed, too.
            fed, wanted = [start, *target[:-1]], list(target)
            if forced.aligns_when_fed and len(target) < self._model.max_target_tokens:
                fed, wanted = [start, *target], [*target, target[-1]]
            reader = forced.reader(encoded, len(fed))
            pieces = []
            for begin in range(0, len(fed), forced.tokens_at_once):
                some = slice(begin, begin + forced.tokens_at_once)
                piece_targets = wanted[some] if forcing.needs_logits else None
                pieces.append(reader.read(fed[some], piece_targets, max(forcing.alternatives, 1)))
                yield
            results.append(self._result(target, forcing, forced, pieces))
        sequence.forced = tuple(results)

    @staticmethod
    def _result(target: tuple[int, ...], forcing: Forcing, forced: ForcedRuntime, pieces: list[ForcedPiece]) -> ForcedTarget:
        log_probs, alignment, best, best_log_probs = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        if forced.aligns_when_fed:
            alignment = alignment[1:] if len(alignment) > len(target) else np.concatenate([alignment[1:], alignment[-1:]])
        count, most = len(target), forcing.alternatives
        scored = count if forcing.needs_logits else 0
        return ForcedTarget(
            target, log_probs[:scored], alignment[:count], best[:scored, :most], best_log_probs[:scored, :most]
        )


def _targets(sequence: Sequence, forcing: Forcing) -> tuple[tuple[int, ...], ...]:
    if forcing.targets is not None:
        return forcing.targets
    return tuple(one.tokens for one in sequence.hypotheses[: 1 if forcing.best_only else None])
