"""The two sides, each a process: `dragoman serve` with `dragoman translate`, and CTranslate2 in its own Python."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dragoman.compare.memory import tree_bytes
from dragoman.errors import ServeError, UsageError

__all__ = ["BundleSide", "PeerSettings", "PeerSide", "Run", "Side"]

START_TIMEOUT_S, STOP_TIMEOUT_S, RUN_TIMEOUT_S = 300.0, 30.0, 6 * 3600.0
SAMPLE_S = 0.05
WORKER = Path(__file__).with_name("peer_worker.py")


@dataclass(frozen=True, slots=True)
class Run:
    """All texts once."""

    texts: tuple[str, ...]
    seconds: float
    peak_bytes: int | None


class Side(Protocol):
    """Something that translates."""

    name: str

    def translate(self, texts: Sequence[str]) -> Run:
        """All of `texts`, timed."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """How CTranslate2 is run."""

    model: Path
    python: Path
    compute_type: str
    threads: int
    beam_size: int
    length_penalty: float
    max_length: int
    batch: int = 32
    sentencepiece: tuple[Path, ...] = ()
    source_prefix: tuple[str, ...] = ()
    target_prefix: tuple[str, ...] = ()


class PeerSide:
    """CTranslate2's own `translate_batch`."""

    def __init__(self, settings: PeerSettings) -> None:
        command = [str(settings.python), str(WORKER)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise UsageError(f"--peer-python {settings.python} can't be started: {error.strerror}") from error
        known = {
            "model": str(settings.model.resolve()),
            "sentencepiece": [str(path.resolve()) for path in settings.sentencepiece],
            "compute_type": settings.compute_type,
            "threads": settings.threads,
            "beam_size": settings.beam_size,
            "length_penalty": settings.length_penalty,
            "max_length": settings.max_length,
            "batch": settings.batch,
            "source_prefix": list(settings.source_prefix),
            "target_prefix": list(settings.target_prefix),
        }
        with _ended_on_failure(self._process):
            loaded = self._ask(known)
        self.name = f"CTranslate2 {loaded['version']} {loaded['compute_type']}"

    def translate(self, texts: Sequence[str]) -> Run:
        with _watched(self._process.pid) as peak:
            found = self._ask({"texts": list(texts)})
        return Run(tuple(found["texts"]), float(found["seconds"]), peak.bytes)

    def close(self) -> None:
        """End the process."""
        _end(self._process)

    def _ask(self, request: dict[str, object]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("the peer has pipes")
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        line = stdout.readline()
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)  # for its own code, not that of being ended
            self.close()
            raise ServeError(
                f"the CTranslate2 process ended with code {self._process.returncode} and said nothing; "
                "--peer-python needs ctranslate2 and sentencepiece, and enough memory"
            )
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            self.close()
            raise ServeError(f"the CTranslate2 process says {line[:100]!r}; --peer-python must be a Python") from error
        if "error" in answer:
            self.close()
            raise UsageError(str(answer["error"]))
        return answer


class BundleSide:
    """A server for the bundle on a free port of the loopback interface, and the client that users have."""

    def __init__(self, bundle: Path, threads: int, beam_size: int | None, *, flags: Sequence[str] = ()) -> None:
        self._program = [sys.executable, "-m", "dragoman.cli"]
        command = [*self._program, "serve", "--bundle", str(bundle), "--grpc-address", "127.0.0.1:0"]
        command += ["--metrics-address", "off", "--response-cache", "0", "--threads", str(threads), "--log-level", "error"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self._flags = [*flags, *(() if beam_size is None else ("--beam", str(beam_size)))]
        with _ended_on_failure(self._process):
            self._address = self._ready()
        self.name = f"dragoman, bundle {bundle.resolve().name}"

    def translate(self, texts: Sequence[str]) -> Run:
        """The start of the client process, measured with one short line just before, is not counted."""
        _, start_s = self._timed(["."])
        with _watched(self._process.pid) as peak:
            found, seconds = self._timed(texts)
        return Run(tuple(found), max(seconds - start_s, 1e-9), peak.bytes)

    def close(self) -> None:
        """Drain and end the server."""
        _end(self._process)

    def _timed(self, texts: Sequence[str]) -> tuple[list[str], float]:
        command = [*self._program, "translate", "--server", self._address, "--json", *self._flags]
        started = time.perf_counter()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as lines:
            lines.writelines(f"{text}\n" for text in texts)
            lines.seek(0)
            done = subprocess.run(
                command, stdin=lines, capture_output=True, text=True, encoding="utf-8", check=False, timeout=RUN_TIMEOUT_S
            )
        seconds = time.perf_counter() - started
        if done.returncode != 0:
            self.close()
            raise ServeError(f"dragoman translate failed: {done.stderr.strip()[-500:]}")
        return [str(json.loads(line)["text"]) for line in done.stdout.splitlines()], seconds

    def _ready(self) -> str:
        stdout, alarm = self._process.stdout, threading.Timer(START_TIMEOUT_S, self._process.kill)
        alarm.start()
        try:
            for line in stdout or ():
                if found := re.match(r"ready: .* at (\S+) after", line):
                    threading.Thread(target=_drain, args=(stdout,), daemon=True).start()
                    return found[1]
        finally:
            alarm.cancel()
        self.close()
        raise ServeError("dragoman serve did not get ready (see above)")


@dataclass(slots=True)
class _Peak:
    bytes: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[_Peak]:
    """The most that the process and its children hold while this lasts, sampled."""
    peak = _Peak(tree_bytes(pid))

    def watch() -> None:
        while not peak.ended.wait(SAMPLE_S):
            held = tree_bytes(pid)
            if held is not None:
                peak.bytes = max(peak.bytes or 0, held)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        peak.ended.set()
        watcher.join()


def _drain(stream: Any) -> None:  # noqa: ANN401 - a text stream
    for _ in stream:
        pass


@contextlib.contextmanager
def _ended_on_failure(process: subprocess.Popen[str]) -> Iterator[None]:
    """A side that does not come to be, on Ctrl-C, too, leaves no process."""
    try:
        yield
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin,):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            process.stdout.close()


def default_threads() -> int:
    """All cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
