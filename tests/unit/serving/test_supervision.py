"""The small parts of the supervisor that need no server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from dragoman import wire
from dragoman.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    RequestError,
    ServeError,
    ServerError,
    SessionLost,
)
from dragoman.serving.config import ServerConfig
from dragoman.serving.failures import Failure, outcome_of
from dragoman.serving.supervisor import parent_watch
from dragoman.serving.supervisor.backoff import Backoff
from dragoman.serving.supervisor.core_wait import CoreWait
from dragoman.serving.supervisor.exposure import require_loopback
from dragoman.serving.supervisor.heartbeat import PING_INTERVAL_S, Heartbeat, Pong
from dragoman.serving.supervisor.liveness import AnswerTimes
from dragoman.serving.supervisor.open_connections import TcpConnection, connections_to
from dragoman.serving.supervisor.status import server_status
from dragoman.serving.triton.flags import Address
from dragoman.serving.triton.installation import Installation, official
from dragoman.wire import ErrorCode
from served import eventually

EMBEDDED = Installation("embedded", Path("tritonserver"), Path("backends"))
ANYWHERE = "0.0.0.0"  # noqa: S104 - nobody listens there in these tests


class TestBackoff:
    def test_a_process_that_died_is_started_again_at_once(self) -> None:
        backoff = Backoff()
        delays_s = []
        for _ in range(6):  # it dies again and again, and every start succeeds
            delays_s.append(backoff.delay_s)
            backoff.start_succeeded()
        assert delays_s == [0.0] * 6

    def test_pauses_grow_while_starts_fail_up_to_a_limit(self) -> None:
        backoff = Backoff(first_s=1.0, longest_s=5.0)
        delays_s = []
        for _ in range(6):
            delays_s.append(backoff.delay_s)
            backoff.start_failed()
        assert delays_s == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]

    def test_a_successful_start_resets_the_pause(self) -> None:
        backoff = Backoff(first_s=1.0)
        for _ in range(100):
            backoff.start_failed()
        backoff.start_succeeded()
        assert backoff.delay_s == 0.0
        backoff.start_failed()
        assert backoff.delay_s == 1.0


class TestHeartbeat:
    def hang_s(self, heartbeat: Heartbeat) -> float:
        """The time until an engine that has stopped answering is taken for hung."""
        silent_s = 0.0
        while not heartbeat.is_hung:
            heartbeat.ping_sent()
            silent_s += PING_INTERVAL_S
            assert silent_s < 1000
        return silent_s

    def test_a_silent_engine_is_hung_within_the_limit(self) -> None:
        assert 2.0 <= self.hang_s(Heartbeat(hang_limit_s=3.0)) <= 3.0

    def test_the_limit_grows_with_the_engines_own_steps(self) -> None:
        heartbeat = Heartbeat(hang_limit_s=3.0)
        heartbeat.pong_received(Pong(progress=1, open_requests=1, longest_step_s=2.0))
        assert self.hang_s(heartbeat) > 12 * 2.0, "a full batch takes that much longer than a single row"

    def test_short_steps_do_not_shorten_the_limit(self) -> None:
        heartbeat = Heartbeat(hang_limit_s=3.0)
        heartbeat.pong_received(Pong(progress=1, open_requests=1, longest_step_s=0.001))
        assert heartbeat.limit_s == 3.0

    def test_an_engine_that_answers_without_progress_while_requests_are_open_is_hung(self) -> None:
        heartbeat = Heartbeat(hang_limit_s=1.0)
        for _ in range(8):
            heartbeat.ping_sent()
            heartbeat.pong_received(Pong(progress=7, open_requests=1))
        assert heartbeat.is_hung
        assert heartbeat.is_regular

    def test_an_idle_engine_and_one_that_makes_progress_are_not(self) -> None:
        idle, busy = Heartbeat(hang_limit_s=1.0), Heartbeat(hang_limit_s=1.0)
        for number in range(100):
            idle.pong_received(Pong(progress=7, open_requests=0))
            busy.pong_received(Pong(progress=number, open_requests=3))
        assert not idle.is_hung
        assert not busy.is_hung

    def test_the_time_without_a_core_does_not_count(self) -> None:
        heartbeat = Heartbeat(hang_limit_s=1.0)
        for _ in range(100):
            heartbeat.ping_sent()
            heartbeat.interval_without_core()
        assert not heartbeat.is_hung
        for _ in range(100):
            heartbeat.ping_sent()
            heartbeat.pong_received(Pong(progress=7, open_requests=1))
            heartbeat.interval_without_core()
        assert not heartbeat.is_hung
        assert self.hang_s(heartbeat) <= 1.0

    def test_an_engine_without_step_times_is_understood(self) -> None:
        assert Pong.from_json({"progress": 3, "open_requests": 1}) == Pong(3, 1, 0.0)


class TestCoreWait:
    def write(self, proc: Path, **threads: int) -> None:
        for thread, waited_ns in threads.items():
            (proc / "7" / "task" / thread).mkdir(parents=True, exist_ok=True)
            (proc / "7" / "task" / thread / "schedstat").write_text(f"5 {waited_ns} 3\n")

    def test_is_that_of_the_thread_that_waited_longest(self, tmp_path: Path) -> None:
        self.write(tmp_path, t7=100, t8=10**9)
        core_wait = CoreWait(7, tmp_path)
        self.write(tmp_path, t7=2 * 10**8 + 100, t8=10**9 + 5, t9=10**10)  # t9 is new: nobody knows since when it has waited
        assert core_wait.since_last_s() == pytest.approx(0.2)
        assert core_wait.since_last_s() == 0.0

    def test_of_a_process_that_is_gone_is_nothing(self, tmp_path: Path) -> None:
        assert CoreWait(8, tmp_path).since_last_s() == 0.0

    def test_is_counted_by_this_kernel(self) -> None:
        """Two busy processes on one core: each waits for the other."""
        core = min(os.sched_getaffinity(0))
        busy = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"]
        with subprocess.Popen(busy) as one, subprocess.Popen(busy) as other:
            try:
                core_wait, deadline_s, waited_s = CoreWait(one.pid), time.monotonic() + 60, 0.0
                while waited_s < 0.2 and time.monotonic() < deadline_s:
                    waited_s += core_wait.since_last_s()
            finally:
                one.kill()
                other.kill()
        assert waited_s >= 0.2


class TestAnswerTimes:
    def test_the_limit_is_a_multiple_of_the_slowest_recent_answer_within_bounds(self) -> None:
        times = AnswerTimes(shortest_limit_s=2.0, longest_limit_s=10.0, factor=10.0)
        assert times.limit_s == 2.0
        times.recent_s.append(0.5)
        assert times.limit_s == 5.0
        times.recent_s.append(3.0)
        assert times.limit_s == 10.0


class TestExposure:
    def config(self, grpc: str, http: str | None = None, allow_remote: bool = False) -> ServerConfig:
        return ServerConfig(
            bundles=(),
            grpc=Address(grpc, 1),
            metrics=Address(ANYWHERE, 2),
            http=None if http is None else Address(http, 3),
            admin_token="",
            allow_remote=allow_remote,
        )

    @pytest.mark.parametrize(
        ("grpc", "http"), [(ANYWHERE, None), ("::", None), ("192.0.2.1", None), ("127.0.0.1", ANYWHERE)]
    )
    def test_the_embedded_triton_is_for_loopback(self, grpc: str, http: str | None) -> None:
        with pytest.raises(ServeError, match=r"bring the embedded Triton .* down .* --allow-remote"):
            require_loopback(self.config(grpc, http), EMBEDDED)

    @pytest.mark.parametrize("grpc", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
    def test_loopback_needs_no_permission(self, grpc: str) -> None:
        require_loopback(self.config(grpc, grpc), EMBEDDED)

    def test_the_operator_may_accept_the_risk(self) -> None:
        require_loopback(self.config(ANYWHERE, allow_remote=True), EMBEDDED)

    def test_the_official_containers_triton_may_listen_anywhere(self) -> None:
        require_loopback(self.config(ANYWHERE, ANYWHERE), official(Path("/opt/tritonserver"), Path("backends")))


class TestOpenConnections:
    def test_are_counted_until_they_are_closed(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            assert connections_to(port) == []
            caller = socket.create_connection(("127.0.0.1", port))
            accepted, _ = listening.accept()
            with accepted:
                with caller:
                    assert connections_to(port) == [TcpConnection(unsent_bytes=0)]
                eventually(lambda: connections_to(port) == [])

    def test_what_the_other_end_has_no_room_for_is_unsent(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as caller, listening.accept()[0] as accepted:
                accepted.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        accepted.send(b"x" * 65536)
                (connection,) = connections_to(port)
                assert connection.unsent_bytes > 0
                caller.settimeout(5)
                eventually(lambda: caller.recv(1 << 20) and connections_to(port)[0].unsent_bytes == 0)


class TestServerStatus:
    INFO: ClassVar = {
        "model": "opus-mt",
        "architecture": "MarianMTModel",
        "parameters": 7,
        "precision": "int8",
        "version": "abc",
        "source_languages": ["en"],
        "target_languages": ["de"],
        "memory": "not for callers",
    }

    def test_has_the_fields_of_the_wire_contract(self) -> None:
        status = server_status({"en-de": self.INFO}, Address("127.0.0.1", 8002))
        assert tuple(status) == wire.STATUS_FIELDS
        assert status["wire_version"] == wire.WIRE_VERSION
        assert status["metrics"] == "http://127.0.0.1:8002/metrics"
        (bundle,) = status["bundles"]
        assert tuple(bundle) == wire.BUNDLE_FIELDS
        assert (bundle["name"], bundle["model"], bundle["source_languages"]) == ("en-de", "opus-mt", ["en"])

    def test_metrics_that_are_off_are_null(self) -> None:
        assert server_status({}, None)["metrics"] is None

    def test_a_bundle_whose_engine_has_not_started_yet_is_listed(self) -> None:
        (bundle,) = server_status({"en-de": {}}, None)["bundles"]
        assert (bundle["name"], bundle["version"], bundle["target_languages"]) == ("en-de", None, [])


class TestParentWatch:
    def test_a_child_ends_with_its_parent(self, tmp_path: Path) -> None:
        note = tmp_path / "pid"
        parent = (
            "import subprocess, sys, time; from dragoman.serving.supervisor.parent_watch import watching_parent; "
            "child = subprocess.Popen(watching_parent(['/bin/sleep', '60'])); "
            f"open({str(note)!r}, 'w').write(str(child.pid)); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", parent]) as process:
            pid = int(eventually(lambda: note.exists() and note.read_text(encoding="utf-8")))
            eventually(lambda: psutil.Process(pid).name() == "sleep")
            os.kill(process.pid, signal.SIGKILL)
            process.wait(120)
            eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)

    def test_nothing_is_started_for_a_parent_that_has_ended(self) -> None:
        somebody_else = "1"
        command = [sys.executable, "-I", "-S", str(parent_watch.__file__), somebody_else, "/bin/echo", "started"]
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
    def test_error_texts_are_spelt_as_on_the_wire(
        self, error: RequestError, code: ErrorCode, text: str, outcome: str
    ) -> None:
        assert Failure.of(error) == Failure(code, text)
        assert outcome_of(error) == outcome

    def test_keep_to_themselves_what_is_not_for_callers(self) -> None:
        failure = Failure.of(ServerError("/secret/path broke"))
        assert failure.code is ErrorCode.INTERNAL
        assert "secret" not in failure.text
