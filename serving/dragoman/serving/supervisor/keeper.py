"""Keeps an engine for a bundle: restarts it when it dies, replaces it when the bundle changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.errors import BundleError, DragomanError, ServeError
from dragoman.serving.logs import event
from dragoman.serving.process.settings import ProcessSettings
from dragoman.serving.supervisor.engine_child import EngineChild

__all__ = ["Backoff", "EngineKeeper", "KeeperTimes"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeeperTimes:
    """How long a keeper waits for what."""

    start_s: float = 120.0
    hang_s: float = 5.0
    drain_s: float = 30.0


class Backoff:
    """How long to wait before the next start: nothing at first, longer while starts keep failing."""

    def __init__(self, first_s: float = 0.1, longest_s: float = 5.0, healthy_after_s: float = 30.0) -> None:
        self._first_s, self._longest_s, self._healthy_after_s = first_s, longest_s, healthy_after_s
        self._failures = 0
        self._last_s = float("-inf")

    def delay_s(self, now_s: float) -> float:
        """Note a failure at `now_s`; the seconds to wait because of it."""
        self._failures = self._failures + 1 if now_s - self._last_s < self._healthy_after_s else 0
        self._last_s = now_s
        return min(self._first_s * 2 ** (self._failures - 1), self._longest_s) if self._failures else 0.0


class EngineKeeper:
    """One bundle and an engine process that serves it now; `number` tells the engines of a bundle apart."""

    def __init__(
        self,
        settings: ProcessSettings,
        directory: Path,
        times: KeeperTimes,
        on_change: Callable[[], None],
        number: int = 1,
    ) -> None:
        self.name, self.number = settings.name, number
        self.restarts = 0
        self.child: EngineChild | None = None
        self._settings, self._directory, self._times, self._on_change = settings, directory, times, on_change
        self._generation = 0
        self._backoff = Backoff()
        self._retiring: set[asyncio.Task[bool]] = set()
        self._changing = asyncio.Lock()
        self._replaced = asyncio.Event()
        self._draining = False

    @property
    def info(self) -> dict[str, Any]:
        """What the engine said of itself when it was ready."""
        return self.child.info if self.child else {}

    @property
    def healthy(self) -> bool:
        return self.child is not None and self.child.answers_pings

    async def start(self) -> None:
        """The first engine; an error here is the operator's to read."""
        self.child = await self._next_engine()
        self._on_change()

    async def keep(self) -> None:
        """Watch for ever: an engine that dies or hangs has a successor as soon as it can start."""
        while not self._draining:
            child = self.child
            if child is None:
                await self._restart()
                continue
            reason = await self._until_dead_or_replaced(child)
            if reason is None or self._draining:
                continue
            self.child = None
            self.restarts += 1
            self._on_change()
            event(_log, logging.ERROR, "engine died", {"model": self.name, "reason": reason, "restarts": self.restarts})

    async def _until_dead_or_replaced(self, child: EngineChild) -> str | None:
        """Why the engine is of no more use; None when a reload has replaced it."""
        self._replaced.clear()
        watching = asyncio.create_task(child.watch(self._times.hang_s))
        replacing = asyncio.create_task(self._replaced.wait())
        try:
            await asyncio.wait([watching, replacing], return_when=asyncio.FIRST_COMPLETED)
            return watching.result() if watching.done() and self.child is child else None
        finally:
            watching.cancel()
            replacing.cancel()
            await asyncio.gather(watching, replacing, return_exceptions=True)

    async def reload(self) -> bool:
        """Serve the bundle as it is on disk now; the old engine goes on until the new one has translated something."""
        async with self._changing:
            try:
                successor = await self._next_engine()
            except DragomanError as error:
                event(_log, logging.ERROR, "reload failed", {"model": self.name, "reason": str(error)})
                return False
            retired, self.child = self.child, successor
        self._replaced.set()
        self._on_change()
        event(_log, logging.INFO, "reloaded", {"model": self.name, "version": self.info.get("version")})
        if retired is not None:
            self._retire(retired)
        return True

    async def drain(self, timeout_s: float) -> bool:
        """End the engine after what it has admitted; True when everything finished."""
        self._draining = True
        ending = [task for task in self._retiring if not task.done()]
        if self.child is not None:
            ending.append(asyncio.create_task(self.child.drain(timeout_s)))
        return all(await asyncio.gather(*ending))

    async def kill(self) -> None:
        self._draining = True
        if self.child is not None:
            await self.child.kill()

    def _retire(self, child: EngineChild) -> None:
        task = asyncio.create_task(child.drain(self._times.drain_s))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _restart(self) -> None:
        while self.child is None and not self._draining:
            await asyncio.sleep(self._backoff.delay_s(time.monotonic()))
            async with self._changing:  # a reload at the same time may be faster
                try:
                    self.child = self.child or await self._next_engine()
                except (ServeError, BundleError) as error:
                    event(_log, logging.ERROR, "engine did not start", {"model": self.name, "reason": str(error)})
        self._on_change()

    async def _next_engine(self) -> EngineChild:
        self._generation += 1
        listens_at = self._directory / f"{self.name}-{self.number}-{self._generation}.sock"
        return await EngineChild.start(self._settings.to_json(), listens_at, self._times.start_s)
