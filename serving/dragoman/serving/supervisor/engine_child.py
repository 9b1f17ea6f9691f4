"""One engine process as its supervisor sees it: started, ready, pinged, drained, dead."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.errors import BundleError, ServeError
from dragoman.serving.link.channel import ChannelClosed
from dragoman.serving.link.frames import Frame, Kind, json_frame
from dragoman.serving.link.stream import FrameStream
from dragoman.serving.supervisor.tether import tethered

__all__ = ["EngineChild", "Pulse"]

_PING_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a PONG says: how far the loop has come and whether it has anything to do."""

    progress: int
    open_requests: int


class EngineChild:
    """A running engine process.

    It answers pings from the same loop that runs the steps, so an answer is progress and silence is a hang; work that
    is open while no step happens, or that does not come back from its thread, is a hang as well.
    """

    def __init__(self, process: asyncio.subprocess.Process, stream: FrameStream, listens_at: Path) -> None:
        self.process, self.listens_at = process, listens_at
        self.info: dict[str, Any] = {}
        self._stream = stream
        self._pulse = Pulse(0, 0)
        self._unanswered = self._without_progress = 0

    @classmethod
    async def start(cls, settings: dict[str, Any], listens_at: Path, start_timeout_s: float) -> EngineChild:
        """Start an engine and wait until it has translated something; raises what it says went wrong."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *tethered([sys.executable, "-m", "dragoman.serving.process", str(theirs.fileno()), str(listens_at)]),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the supervisor's to deal with
            )
        stream = await FrameStream.over(ours)
        child = cls(process, stream, listens_at)
        try:
            stream.send(json_frame(Kind.SETTINGS, settings))
            child.info = await asyncio.wait_for(child._first_word(), start_timeout_s)
        except asyncio.TimeoutError:
            await child.kill()
            raise ServeError(f"the engine was not ready within {start_timeout_s:.0f} s; raise --start-timeout") from None
        except BaseException:
            await child.kill()
            raise
        return child

    async def _first_word(self) -> dict[str, Any]:
        try:
            frame = await self._stream.receive()
        except ChannelClosed:
            code = await self.process.wait()
            raise ServeError(f"the engine process ended while starting ({_ending(code)}); its log says why") from None
        if frame.kind is Kind.FAILED:
            kind, message = (part.decode() for part in frame.parts)
            raise BundleError(message) if kind == "BundleError" else ServeError(message)
        info: dict[str, Any] = frame.json()
        return info

    async def watch(self, hang_timeout_s: float) -> str:
        """Return when the engine is of no more use, with the reason; kills it if it hangs."""
        listening = asyncio.create_task(self._listen())
        patience = max(2, round(hang_timeout_s / _PING_EVERY_S))
        self._unanswered = self._without_progress = 0
        try:
            while not listening.done():
                self._unanswered += 1
                self._stream.send(Frame(Kind.PING))
                await asyncio.wait([listening], timeout=_PING_EVERY_S)
                # Counted in pings and not in seconds: a supervisor that got no time to run accuses nobody.
                if self._unanswered > patience or self._without_progress > patience:
                    await self.kill()
                    return f"it hung for {hang_timeout_s:g} s"
            return _ending(await self.process.wait())
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    @property
    def answers_pings(self) -> bool:
        """Has it answered lately?"""
        return self._unanswered < 4

    async def _listen(self) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                frame = await self._stream.receive()
                if frame.kind is Kind.PONG:
                    pulse = Pulse(**frame.json())
                    self._unanswered = 0
                    idle_or_moved = pulse.open_requests == 0 or pulse.progress != self._pulse.progress
                    self._without_progress = 0 if idle_or_moved else self._without_progress + 1
                    self._pulse = pulse

    async def drain(self, timeout_s: float) -> bool:
        """Let it finish what it has; True when it ended by itself in time."""
        self._stream.send(Frame(Kind.DRAIN))
        try:
            await asyncio.wait_for(self.process.wait(), timeout_s)
        except asyncio.TimeoutError:
            await self.kill()
            return False
        self._stream.close()
        return True

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._stream.close()
        self.listens_at.unlink(missing_ok=True)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
