"""One engine process from the view of its supervisor: started, ready, pinged, drained, dead."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

from dragoman.errors import BundleError, ServeError
from dragoman.serving.ipc.channel import ChannelClosed
from dragoman.serving.ipc.frames import Frame, Kind, json_frame
from dragoman.serving.ipc.stream import FrameStream
from dragoman.serving.supervisor.core_wait import CoreWait
from dragoman.serving.supervisor.heartbeat import PING_INTERVAL_S, Heartbeat, Pong
from dragoman.serving.supervisor.parent_watch import watching_parent

__all__ = ["EngineChild"]


class EngineChild:
    """A running engine process.

    It answers pings from the same loop that runs the steps, so an answer is progress and silence is a hang; so is open work
    without a step, or a call that does not return from its thread. While the machine has no core for it, silence proves
    nothing.
    """

    def __init__(self, process: asyncio.subprocess.Process, stream: FrameStream, listens_at: Path) -> None:
        self.process, self.listens_at = process, listens_at
        self.info: dict[str, Any] = {}
        self._stream = stream
        self._heartbeat: Heartbeat | None = None

    @classmethod
    async def start(cls, settings: dict[str, Any], listens_at: Path, start_timeout_s: float) -> EngineChild:
        """Start an engine and wait until it has translated something; raises the error that it reports."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *watching_parent([sys.executable, "-m", "dragoman.serving.process", str(theirs.fileno()), str(listens_at)]),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # only the supervisor handles Ctrl-C
            )
        stream = await FrameStream.over(ours)
        child = cls(process, stream, listens_at)
        try:
            stream.send(json_frame(Kind.SETTINGS, settings))
            child.info = await asyncio.wait_for(child._introduction(), start_timeout_s)
        except asyncio.TimeoutError:
            await child.kill()
            raise ServeError(f"the engine was not ready within {start_timeout_s:.0f} s; raise --start-timeout") from None
        except BaseException:
            await child.kill()
            raise
        return child

    async def _introduction(self) -> dict[str, Any]:
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

    async def watch(self, hang_limit_s: float) -> str:
        """Return when the engine has to be replaced, with the reason; kills it if it hangs."""
        heartbeat = self._heartbeat = Heartbeat(hang_limit_s)
        core_wait = CoreWait(self.process.pid)
        listening = asyncio.create_task(self._listen(heartbeat))
        try:
            while not listening.done():
                heartbeat.ping_sent()
                self._stream.send(Frame(Kind.PING))
                await asyncio.wait([listening], timeout=PING_INTERVAL_S)
                if core_wait.since_last_s() > PING_INTERVAL_S / 2:
                    heartbeat.interval_without_core()
                if heartbeat.is_hung:
                    await self.kill()
                    return f"it hung for {heartbeat.limit_s:g} s"
            return await self._end_after_closing(heartbeat.limit_s)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    @property
    def answers_pings(self) -> bool:
        """Whether it has answered recently. Always true before it is watched."""
        return self._heartbeat is None or self._heartbeat.is_regular

    async def _listen(self, heartbeat: Heartbeat) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                frame = await self._stream.receive()
                if frame.kind is Kind.PONG:
                    heartbeat.pong_received(Pong.from_json(frame.json()))

    async def _end_after_closing(self, timeout_s: float) -> str:
        """An engine closes its connection when it ends; one that closes it and keeps running is killed."""
        try:
            return _ending(await asyncio.wait_for(self.process.wait(), timeout_s))
        except asyncio.TimeoutError:
            await self.kill()
            return f"it closed its connection and did not end within {timeout_s:g} s"

    async def drain(self, timeout_s: float) -> bool:
        """Let it finish its work; True when it ended by itself in time."""
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
