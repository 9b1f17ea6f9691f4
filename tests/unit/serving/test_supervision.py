"""The small parts of the supervisor that need no server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dragoman.errors import Cancelled, DeadlineExceeded, InvalidRequest, Overloaded, RequestError, ServerError, SessionLost
from dragoman.serving.failures import Failure, outcome_of
from dragoman.serving.supervisor import tether
from dragoman.serving.supervisor.keeper import Backoff
from dragoman.wire import ErrorCode
from served import eventually


class TestBackoff:
    def test_the_first_failure_costs_nothing(self) -> None:
        assert Backoff().delay_s(100.0) == 0.0

    def test_failures_in_a_row_cost_more_and_more_up_to_a_limit(self) -> None:
        backoff = Backoff(first_s=1.0, longest_s=5.0, healthy_after_s=30.0)
        assert [backoff.delay_s(float(second)) for second in range(6)] == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]

    def test_a_long_healthy_life_is_forgiven(self) -> None:
        backoff = Backoff(first_s=1.0, longest_s=5.0, healthy_after_s=30.0)
        for second in range(4):
            backoff.delay_s(float(second))
        assert backoff.delay_s(100.0) == 0.0


def test_a_tethered_process_ends_with_its_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    parent = (
        "import subprocess, sys, time; from dragoman.serving.supervisor.tether import tethered; "
        "child = subprocess.Popen(tethered(['/bin/sleep', '60'])); "
        f"open({str(note)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        pid = int(eventually(lambda: note.exists() and note.read_text(encoding="utf-8")))
        eventually(lambda: psutil.Process(pid).name() == "sleep")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_tether_to_a_parent_that_is_gone_already_starts_nothing() -> None:
    somebody_else = "1"
    command = [sys.executable, "-I", "-S", str(tether.__file__), somebody_else, "/bin/echo", "started"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "code", "text", "outcome"),
        [
            (InvalidRequest("no"), ErrorCode.INVALID_REQUEST, "INVALID_REQUEST: no", "invalid"),
            (Overloaded("full", 0.25), ErrorCode.OVERLOADED, "OVERLOADED retry_after_ms=250: full", "overloaded"),
            (DeadlineExceeded("late"), ErrorCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED: late", "deadline"),
            (Cancelled("gone"), ErrorCode.CANCELLED, "CANCELLED: gone", "cancelled"),
            (SessionLost("idle"), ErrorCode.SESSION_LOST, "SESSION_LOST: idle", "session_lost"),
        ],
    )
    def test_are_spelt_as_the_wire_says(self, error: RequestError, code: ErrorCode, text: str, outcome: str) -> None:
        assert Failure.of(error) == Failure(code, text)
        assert outcome_of(error) == outcome

    def test_keep_to_themselves_what_is_not_for_callers(self) -> None:
        failure = Failure.of(ServerError("/secret/path broke"))
        assert failure.code is ErrorCode.INTERNAL
        assert "secret" not in failure.text
