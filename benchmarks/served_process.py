"""A separate `dragoman serve` on free ports, and what its processes take."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["ServedProcess", "serving"]


@dataclass(frozen=True, slots=True)
class ServedProcess:
    """A server that is ready."""

    address: str
    process: psutil.Process
    ready_s: float

    def cpu_s(self) -> float:
        """CPU time of all its processes so far."""
        times = [one.cpu_times() for one in self._family()]
        return float(sum(time.user + time.system for time in times))

    def memory_bytes(self) -> int:
        """Proportional share of every process: memory they share is counted once."""
        return sum(one.memory_full_info().pss for one in self._family())

    def _family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


@contextlib.contextmanager
def serving(bundle: Path, *flags: str, environment: Mapping[str, str] | None = None) -> Iterator[ServedProcess]:
    """`dragoman serve` with these flags, gone at the end."""
    command = [str(Path(sys.executable).with_name("dragoman")), "serve", "--bundle", f"en-de={bundle}", *flags]
    command += ["--grpc-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]
    variables, begun = {**os.environ, **(environment or {})}, time.perf_counter()
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            for line in process.stdout or ():
                if line.startswith("ready:"):
                    address = line.split(" at ")[1].split()[0]
                    yield ServedProcess(address, psutil.Process(process.pid), time.perf_counter() - begun)
                    return
            raise SystemExit("the server did not get ready; run `dragoman serve` to see why")
        finally:
            process.terminate()
