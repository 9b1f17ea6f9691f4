"""A test run leaves nothing behind, however it ends: no process that it started, and no temporary file of one.

Every process inherits a mark and a temporary directory of the run. A guard, which outlives the run, ends whatever still
bears the mark when the run is over, be it interrupted, terminated or killed, and removes the directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "DRAGOMAN_TEST_RUN"
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Guard:
    """Watches one run."""

    directory: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls) -> Guard:
        """From now on processes are marked, and have their temporary files in a directory of the run."""
        # Where pytest's own directories are stays as it is: it keeps those of the last failures.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        directory = Path(tempfile.mkdtemp(prefix="dt-"))  # short: unix sockets have short names only
        process = subprocess.Popen([sys.executable, __file__, str(directory)], stdin=subprocess.PIPE, start_new_session=True)
        os.environ[MARK], os.environ["TMPDIR"] = directory.name, str(directory)
        tempfile.tempdir = str(directory)
        return cls(directory, process)

    def stop(self) -> list[str]:
        """End the watch; what was left is ended too, and returned."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while (
            left := [pid for pid in marked(self.directory.name) if not _ends_with_us(pid)]
        ) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        described = [f"{pid}: {about(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')}" for pid in left]
        self.process.communicate()
        return described


def marked(mark: str) -> list[int]:
    """The running processes that bear the mark; those that set it have it not."""
    wanted = f"{MARK}={mark}".encode()
    pids = [int(process.name) for process in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if wanted in about(pid, "environ").split(b"\0")]


def about(pid: int, what: str) -> bytes:
    """The content of a file of /proc; nothing when the process has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def _ends_with_us(pid: int) -> bool:
    """Python has one of them clean up after a process that used multiprocessing."""
    return b"multiprocessing.resource_tracker" in about(pid, "cmdline")


def watch(directory: Path) -> None:
    """Until the run that started this closes our input, or is no more."""
    sys.stdin.buffer.read()
    while left := marked(directory.name):  # again and again: one may have started another just now
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
