"""Our end of a worker: starts it in the right environment, asks, and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Worker", "WorkerFailed", "worker"]

ROOT = Path(__file__).parent.parent
CLOSE_TIMEOUT_S = 20.0


class WorkerFailed(Exception):
    """The other side could not do what it was asked; its own traceback is in the message."""


class Worker:
    """A side in a process of its own, so that neither's threads, allocator or imports touch the other's figures."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self.name = name

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON can say
        """One question, one answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"op": operation, **request}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerFailed(f"{self.name} ended with {self._process.wait()} during {operation!r}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self.name} failed during {operation!r}:\n{answer['error']}")
        return answer

    def close(self) -> None:
        """End of input ends a worker; one that hangs is killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextlib.contextmanager
def worker(python: Path, side: str, threads: int, environment: Mapping[str, str] | None = None) -> Iterator[Worker]:
    """`benchmarks.workers.<side>` under the interpreter `python`, told the same number of threads in every dialect."""
    pinned = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    silent = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [str(python), "-W", "ignore", "-m", f"benchmarks.workers.{side}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **pinned, **silent, **(environment or {})},
    )
    started = Worker(process, side)
    try:
        yield started
    finally:
        started.close()
