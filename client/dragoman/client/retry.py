"""When to try again: full jitter, a budget for all calls together, and never past the deadline.

Pure bookkeeping; the transport does the waiting and the sending.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.client.failures import Failure, Retry
from dragoman.client.servers import Servers
from dragoman.errors import DeadlineExceeded, Overloaded, UsageError

__all__ = ["Attempts", "RetryBudget", "RetryPolicy"]

_NO_TIME_S = 0.02


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a call that the server could not take is sent again.

    A server that is down or restarting is waited for until the call's deadline, with pauses that double from
    `first_wait_s` to `longest_wait_s`; one that has never answered this client, so that its address may be wrong, for
    `connect_timeout_s` at most. A server that answers "overloaded" gets `max_attempts` of a call, and `budget` bounds
    these retries over all calls: it starts full, a retry costs 1 and each answer earns `earned_by_answer`, so that
    such a server sees at most a tenth more load. `max_attempts=1` turns both off.
    """

    max_attempts: int = 4
    first_wait_s: float = 0.05
    longest_wait_s: float = 1.0
    connect_timeout_s: float = 5.0
    budget: float = 10.0
    earned_by_answer: float = 0.1

    def __post_init__(self) -> None:
        durations = (self.first_wait_s, self.longest_wait_s, self.connect_timeout_s)
        if self.max_attempts < 1 or min(*durations, self.budget, self.earned_by_answer) < 0:
            raise UsageError(f"{self} is impossible: at least one attempt, and nothing negative")

    @classmethod
    def never(cls) -> RetryPolicy:
        """Every failure reaches the caller at once."""
        return cls(max_attempts=1)

    @classmethod
    def patient(cls) -> RetryPolicy:
        """For long jobs, which bound their load by their window: retried until the deadline."""
        return cls(max_attempts=1_000_000, budget=1_000_000.0)


class RetryBudget:
    """The tokens that all calls of one translator pay their retries with."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._tokens = policy.budget
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Pay for one retry; False when there is nothing left."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def earn(self) -> None:
        """A call was answered."""
        if self._tokens < self._policy.budget:
            with self._lock:
                self._tokens = min(self._policy.budget, self._tokens + self._policy.earned_by_answer)


class Attempts:
    """The tries of one call: which server next, how much time is left, and when it is enough."""

    def __init__(
        self,
        policy: RetryPolicy,
        budget: RetryBudget,
        servers: Servers,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._policy, self._budget, self._servers = policy, budget, servers
        self._clock, self._jitter = clock, jitter
        self._timeout_s = timeout_s
        self._began_at = clock()
        self._deadline = self._began_at + timeout_s
        self._tried: set[int] = set()
        self._made = 0
        self._refused = 0
        self.server = servers.pick(self._tried)

    @property
    def remaining_s(self) -> float:
        """What is left of the caller's time."""
        return max(self._deadline - self._clock(), 0.001)

    def answered(self) -> None:
        """This attempt was answered."""
        self._servers.answered(self.server)
        self._budget.earn()

    def failed(self, failure: Failure) -> float:
        """Seconds to wait before the next attempt at `self.server`; raises the failure's error when there is none."""
        self._made += 1
        self._refused += failure.retry is not Retry.WAIT
        self._tried.add(self.server)
        (self._servers.mark_down if failure.server_down else self._servers.answered)(self.server)
        # A server that can't be used (an untrusted certificate) is no reason not to use the others.
        elsewhere = failure.server_down and len(self._tried) < len(self._servers)
        if self._policy.max_attempts == 1 or (failure.retry is Retry.NEVER and not elsewhere):
            raise failure.error from None
        wait_s = self._wait_s(failure)
        if failure.retry is Retry.WAIT:
            wait_s = self._until_back_s(failure, wait_s)
        else:
            self._pay(failure, wait_s)
        self.server = self._servers.pick(self._tried)
        return wait_s

    def _wait_s(self, failure: Failure) -> float:
        if len(self._tried) < len(self._servers):
            return 0.0  # another server may have time right now
        self._tried.clear()
        if isinstance(failure.error, Overloaded):  # never earlier than the server's hint, and not all at the same moment
            return failure.error.retry_after_s * (1 + 0.5 * self._jitter())
        longest_s = min(self._policy.first_wait_s * 2.0 ** min(self._made - 1, 30), self._policy.longest_wait_s)
        return longest_s * self._jitter()

    def _until_back_s(self, failure: Failure, wait_s: float) -> float:
        """The pause before a server that is down is tried again: the last one ends before the deadline does."""
        now = self._clock()
        if not self._servers.any_answered and now + wait_s >= self._began_at + self._policy.connect_timeout_s:
            raise failure.error from None
        if now >= self._deadline - _NO_TIME_S:
            raise self._too_late(failure) from None
        return min(wait_s, (self._deadline - now) / 2)

    def _pay(self, failure: Failure, wait_s: float) -> None:
        """A retry of a call that was refused: bounded for this call, and for all of them."""
        if self._refused >= self._policy.max_attempts:
            raise failure.error from None
        if self._clock() + wait_s >= self._deadline:  # waiting would only turn a clear error into a vague one
            raise self._too_late(failure) from None
        if not self._budget.spend():
            raise failure.error from None

    def _too_late(self, failure: Failure) -> Exception:
        if isinstance(failure.error, Overloaded):
            return failure.error
        return DeadlineExceeded(f"gave up after {self._timeout_s:g} s and {self._made} attempts: {failure.error}")
