"""The bookkeeping of retries and servers, with a clock that the test moves."""

from __future__ import annotations

import pytest

from dragoman.client.failures import Failure, Retry, read_message
from dragoman.client.retry import Attempts, RetryBudget, RetryPolicy
from dragoman.client.servers import LONGEST_REST_S, Servers
from dragoman.errors import DeadlineExceeded, InvalidRequest, Overloaded, ServerError, UsageError

REFUSED = Failure(ServerError("refused"), Retry.LATER)
GONE = Failure(ServerError("gone"), Retry.WAIT, server_down=True)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def attempts(clock: Clock, policy: RetryPolicy, servers: int = 1, timeout_s: float = 100, jitter: float = 1.0) -> Attempts:
    return Attempts(policy, RetryBudget(policy), Servers(servers, clock), timeout_s, clock=clock, jitter=lambda: jitter)


def test_waits_double_up_to_the_longest(clock: Clock) -> None:
    tries = attempts(clock, RetryPolicy(max_attempts=9, first_wait_s=0.1, longest_wait_s=0.5))
    assert [tries.failed(REFUSED) for _ in range(5)] == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


def test_jitter_spreads_waits_down_to_nothing(clock: Clock) -> None:
    assert attempts(clock, RetryPolicy(), jitter=0.0).failed(REFUSED) == 0.0


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_a_hint_is_never_undercut(clock: Clock, jitter: float) -> None:
    wait_s = attempts(clock, RetryPolicy(), jitter=jitter).failed(Failure(Overloaded("full", 2.0), Retry.LATER))
    assert 2.0 <= wait_s <= 3.0


def test_what_the_caller_got_wrong_is_raised_at_once(clock: Clock) -> None:
    with pytest.raises(InvalidRequest):
        attempts(clock, RetryPolicy()).failed(Failure(InvalidRequest("no")))


def test_a_wait_past_the_deadline_is_a_deadline(clock: Clock) -> None:
    tries = attempts(clock, RetryPolicy(first_wait_s=1.0), timeout_s=0.5)
    with pytest.raises(DeadlineExceeded, match="refused"):
        tries.failed(REFUSED)


def reached(clock: Clock, policy: RetryPolicy, timeout_s: float = 100) -> Attempts:
    """The attempts of a call to a server that answered an earlier one."""
    tries = attempts(clock, policy, timeout_s=timeout_s)
    tries.answered()
    return tries


def test_waiting_for_a_server_that_is_down_costs_no_budget_and_no_attempt(clock: Clock) -> None:
    tries = reached(clock, RetryPolicy(max_attempts=2, budget=1.0))
    for _ in range(50):
        clock.now += tries.failed(GONE)
    tries.failed(REFUSED)  # the first refusal, and the first retry that costs
    with pytest.raises(ServerError, match="refused"):
        tries.failed(REFUSED)


def test_a_server_that_is_down_is_tried_until_the_very_deadline(clock: Clock) -> None:
    tries = reached(clock, RetryPolicy(first_wait_s=0.05, longest_wait_s=1.0), timeout_s=10)
    with pytest.raises(DeadlineExceeded, match=r"gave up after 10 s and .* attempts: gone"):
        while True:
            clock.now += tries.failed(GONE)
    assert 9.9 < clock.now <= 10


def test_an_address_that_never_answered_is_given_up_after_the_connect_timeout(clock: Clock) -> None:
    tries = attempts(clock, RetryPolicy(connect_timeout_s=5.0))
    with pytest.raises(ServerError, match="gone"):
        while True:
            clock.now += tries.failed(GONE)
    assert 3 < clock.now <= 5


def test_without_retries_a_server_that_is_down_is_an_error_at_once(clock: Clock) -> None:
    with pytest.raises(ServerError, match="gone"):
        reached(clock, RetryPolicy.never()).failed(GONE)


def test_answers_refill_the_budget() -> None:
    budget = RetryBudget(RetryPolicy(budget=1.0, earned_by_answer=0.5))
    assert [budget.spend(), budget.spend()] == [True, False]
    budget.earn()
    assert not budget.spend()
    budget.earn()
    assert budget.spend()


def test_another_server_is_tried_without_waiting(clock: Clock) -> None:
    tries = attempts(clock, RetryPolicy(max_attempts=9), servers=3)
    asked = [tries.server]
    waits = []
    for _ in range(3):
        waits.append(tries.failed(REFUSED))
        asked.append(tries.server)
    assert sorted(asked[:3]) == [0, 1, 2]
    assert [wait_s > 0 for wait_s in waits] == [False, False, True]


def test_a_server_that_is_down_is_left_out_until_a_probe_finds_it_up(clock: Clock) -> None:
    servers = Servers(2, clock)
    servers.mark_down(0)
    assert {servers.pick() for _ in range(4)} == {1}
    clock.now = LONGEST_REST_S
    assert {servers.pick() for _ in range(4)} == {1}
    assert servers.due_for_probe() == [0]
    servers.mark_up(0)
    assert {servers.pick() for _ in range(4)} == {0, 1}


def test_a_probe_is_given_to_one_caller_only(clock: Clock) -> None:
    servers = Servers(2, clock)
    servers.mark_down(0)
    assert servers.due_for_probe() == []
    clock.now = LONGEST_REST_S
    assert (servers.due_for_probe(), servers.due_for_probe()) == ([0], [])


def test_rests_grow_while_a_server_stays_down(clock: Clock) -> None:
    servers = Servers(2, clock)
    rests = []
    for _ in range(8):
        servers.mark_down(0)
        began = clock.now
        while not servers.due_for_probe():
            clock.now += 0.25
        rests.append(clock.now - began)
    assert rests[0] == 0.5
    assert rests == sorted(rests)
    assert rests[-1] == LONGEST_REST_S


def test_when_all_servers_are_down_a_request_is_still_sent(clock: Clock) -> None:
    servers = Servers(2, clock)
    servers.mark_down(0)
    servers.mark_down(1)
    assert servers.pick() in (0, 1)


def test_a_single_server_is_never_left_out(clock: Clock) -> None:
    servers = Servers(1, clock)
    servers.mark_down(0)
    assert servers.pick() == 0
    assert servers.due_for_probe() == []


def test_an_impossible_policy_is_refused() -> None:
    with pytest.raises(UsageError):
        RetryPolicy(max_attempts=0)


@pytest.mark.parametrize("said", ["", "an error", "NOT_OURS: x", "invalid_request: x", "INTERNAL"])
def test_a_message_without_an_error_code_is_left_alone(said: str) -> None:
    assert read_message(said) is None


def test_a_draining_server_is_left_out() -> None:
    failure = read_message("DRAINING: the server is shutting down")
    assert failure is not None
    assert (failure.retry, failure.server_down) == (Retry.WAIT, True)


def test_a_server_that_is_of_no_use_leaves_the_others_to_be_tried(clock: Clock) -> None:
    useless = Failure(ServerError("a certificate nobody trusts"), server_down=True)
    tries = attempts(clock, RetryPolicy(), servers=2)
    first = tries.server
    assert tries.failed(useless) == 0.0
    assert tries.server != first
    with pytest.raises(ServerError):
        tries.failed(useless)
