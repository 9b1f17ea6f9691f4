"""Several servers on one machine, a balancer in front of them, and a load that notes the fate of every translation."""

from __future__ import annotations

import functools
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.caller_threads import CallerThreads
from dragoman.client import Translator
from dragoman.errors import DragomanError
from dragoman.serving.supervisor.ports import free_port

__all__ = ["Balancer", "Replica", "SteadyLoad", "Translated", "nginx_version", "start_replicas", "wait_until"]

NGINX = Path(__file__).resolve().parents[1] / "deploy" / "nginx"
_START_S, _STOP_S = 120.0, 60.0


def wait_until(true: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until it is so; RuntimeError when it is not in time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.02)


class Replica:
    """A `dragoman serve` that keeps its ports over restarts."""

    def __init__(self, bundle: Path, directory: Path, number: int, threads: int = 1) -> None:
        self._log = directory / f"replica-{number}.log"
        self._arguments = [f"--bundle=en-de={bundle}", f"--threads={threads}"]
        self.grpc = f"127.0.0.1:{free_port('127.0.0.1')}"
        self.metrics = f"127.0.0.1:{free_port('127.0.0.1')}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting."""
        command = [str(Path(sys.executable).with_name("dragoman")), "serve", *self._arguments]
        command += [f"--grpc-address={self.grpc}", f"--metrics-address={self.metrics}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"a server ended while starting: {self._log.read_text(encoding='utf-8')[-2000:]}")
            return b"\nready: " in self._log.read_bytes()

        wait_until(ready, _START_S, "a server's start")

    def stop(self) -> None:
        """Drain and end."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_S)

    def kill(self) -> None:
        """Kill it; its processes end with it."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self._process.kill()
            self._process.wait(_STOP_S)

    def freeze(self) -> None:
        """Hang as a machine would: connections stay open, and nothing is sent any more."""
        for process in self._tree():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        for process in reversed(self._tree()):
            process.send_signal(signal.SIGCONT)

    def _tree(self) -> list[psutil.Process]:
        """The supervisor first: frozen, it can't replace what is frozen after it."""
        if self._process is None or self._process.poll() is not None:
            return []
        supervisor = psutil.Process(self._process.pid)
        return [supervisor, *supervisor.children(recursive=True)]


def start_replicas(bundle: Path, directory: Path, count: int, threads: int = 1) -> list[Replica]:
    """All at the same time; returns when every one has translated something."""
    replicas = [Replica(bundle, directory, number, threads) for number in range(count)]
    try:
        for replica in replicas:
            replica.start()
        for replica in replicas:
            replica.wait_until_ready()
    except BaseException:
        for replica in replicas:
            replica.kill()
        raise
    return replicas


class Balancer:
    """nginx with the configuration that is deployed; only port, paths and servers are this machine's."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="nginx-")
        home = Path(self._directory.name)
        self.address = f"127.0.0.1:{free_port('127.0.0.1')}"
        config = (NGINX / "nginx.conf").read_text(encoding="utf-8").replace("/tmp/", f"{home}/")  # noqa: S108 - the container's own
        config = config.replace("listen 8001", f"listen {self.address}").replace(
            "worker_processes auto", "worker_processes 1"
        )
        # The mime types beside it are not needed, and an unprivileged nginx needs no user.
        (home / "nginx.conf").write_text(config, encoding="utf-8")
        self._servers = home / "servers.conf"
        self._write(servers)
        command = ["nginx", "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]
        with (home / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._home = home
        wait_until(self._listens, 20, f"nginx ({(home / 'log').read_text(encoding='utf-8')})")

    def send_to(self, servers: Sequence[str]) -> None:
        """New requests go to these servers only from now on; those on their way elsewhere may finish."""
        before = self._workers()
        self._write(servers)
        self._process.send_signal(signal.SIGHUP)
        # A worker that still has requests lives on; what matters is that a new one is there.
        wait_until(lambda: bool(self._workers() - before), 20, "nginx's new worker")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._directory.cleanup()

    def _write(self, servers: Sequence[str]) -> None:
        """As for compose, with a list of addresses in the place of a name."""
        deployed = (NGINX / "servers.compose.conf").read_text(encoding="utf-8")
        lines = [line for line in deployed.splitlines() if line.startswith("server triton:8001 resolve ")]
        here = [line.replace("triton:8001 resolve", server) for line in lines for server in servers]
        self._servers.write_text("\n".join(here) + "\n", encoding="utf-8")

    def _workers(self) -> set[int]:
        return {child.pid for child in psutil.Process(self._process.pid).children()}

    def _listens(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"nginx ended: {(self._home / 'log').read_text(encoding='utf-8')}")
        port = int(self.address.rpartition(":")[2])
        return any(
            connection.laddr.port == port and connection.status == psutil.CONN_LISTEN
            for connection in psutil.Process(self._process.pid).net_connections()
        )


@dataclass(frozen=True, slots=True)
class Translated:
    """The fate of one request, in monotonic seconds; `problem` is None when the right text came back."""

    began_at: float
    took_s: float
    problem: str | None


@dataclass
class SteadyLoad:
    """So many users who ask one after another, through one Translator, until the block ends."""

    translator: Translator
    expected: dict[str, str]
    users: int = 3
    fates: list[Translated] = field(default_factory=list)

    def __enter__(self) -> SteadyLoad:
        texts = list(self.expected)
        turns = (itertools.cycle([*texts[user % len(texts) :], *texts[: user % len(texts)]]) for user in range(self.users))
        self._threads = CallerThreads(functools.partial(self._ask, turn) for turn in turns).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.__exit__()

    @property
    def lost(self) -> list[Translated]:
        return [fate for fate in self.fates if fate.problem is not None]

    def answered_after(self, at: float) -> int:
        """How many requests that were sent after `at` are answered."""
        return sum(fate.began_at > at for fate in list(self.fates))

    def recovered_after_s(self, since: float, slow_s: float) -> float:
        """How long after `since` the last request was answered that took `slow_s` or more; 0 when none did."""
        answered = ((fate.began_at + fate.took_s - since, fate.took_s) for fate in self.fates)
        return max((after_s for after_s, took_s in answered if after_s > 0 and took_s >= slow_s), default=0.0)

    def _ask(self, texts: Iterator[str]) -> None:
        text = next(texts)
        began_at = time.monotonic()
        try:
            output = self.translator.translate(text, cache=False).text
            problem = None if output == self.expected[text] else f"{text!r} became {output!r}"
        except DragomanError as error:
            problem = f"{type(error).__name__}: {error}"
        self.fates.append(Translated(began_at, time.monotonic() - began_at, problem))


def nginx_version() -> str | None:
    """None when there is no nginx that speaks gRPC."""
    try:
        said = subprocess.run(["nginx", "-V"], capture_output=True, text=True, check=False, timeout=10).stderr
    except FileNotFoundError:
        return None
    found = re.search(r"nginx/(\S+)", said)
    return found[1] if found and "http_v2_module" in said and os.access("/dev/shm", os.W_OK) else None  # noqa: S108
