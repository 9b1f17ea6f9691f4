"""The tritonserver process: started, listening, ended and cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from pathlib import Path

from dragoman.errors import ServeError
from dragoman.serving.logs import event
from dragoman.serving.supervisor.parent_watch import watching_parent
from dragoman.serving.triton.flags import TritonFlags
from dragoman.serving.triton.installation import SUPERVISOR_VARIABLE, Installation
from dragoman.serving.triton.probe import Probe

__all__ = ["TritonChild"]

_log = logging.getLogger(__name__)
_POLL_S = 0.05


class TritonChild:
    """A running tritonserver with the Triton models of dragoman."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._last_words: deque[str] = deque(maxlen=20)
        self._log_reader = asyncio.create_task(self._forward_log())

    @classmethod
    async def start(cls, installation: Installation, flags: TritonFlags, supervisor: Path) -> TritonChild:
        process = await asyncio.create_subprocess_exec(
            *watching_parent([str(installation.binary), *flags.argv()]),
            env={**os.environ, **installation.environment, SUPERVISOR_VARIABLE: str(supervisor)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # only the supervisor handles Ctrl-C
        )
        return cls(process)

    async def wait_until_listening(self, probe: Probe, timeout_s: float) -> None:
        """Return when it accepts requests; ServeError with its last log lines when it ends instead."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while not await probe.is_listening(timeout_s=1.0):
            if self.process.returncode is not None:
                await self._log_reader
                raise ServeError("Triton ended while starting: " + (" / ".join(self._complaints()) or "it logged nothing"))
            if asyncio.get_running_loop().time() > deadline_s:
                raise ServeError(f"Triton was not ready within {timeout_s:.0f} s; raise --start-timeout")
            await asyncio.sleep(_POLL_S)

    async def kill(self) -> None:
        """End it now, with all its child processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        await self.process.wait()
        await self._log_reader

    async def _forward_log(self) -> None:
        if self.process.stdout is None:
            return
        async for raw in self.process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self._last_words.append(line)
            if line and not _is_noise(line):
                event(_log, logging.WARNING, "triton", {"line": line})

    def _complaints(self) -> list[str]:
        errors = [line for line in self._last_words if line.startswith("E") or "error" in line.lower()]
        return [line.partition("\\n")[0][:300] for line in errors[-2:]]


def _is_noise(line: str) -> bool:
    """What Triton logs on every machine without a GPU, and about a signal of the supervisor."""
    return "pinned" in line or "CudaDriverHelper" in line or line.startswith("Signal (15)")
