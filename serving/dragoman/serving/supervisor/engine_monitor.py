"""Keeps an engine process running for a bundle: restarts it when it dies, replaces it when the bundle changes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman.errors import BundleError, DragomanError, ServeError
from dragoman.serving.config import Timeouts
from dragoman.serving.logs import event
from dragoman.serving.process.settings import ProcessSettings
from dragoman.serving.supervisor.backoff import Backoff
from dragoman.serving.supervisor.engine_child import EngineChild

__all__ = ["EngineMonitor"]

_log = logging.getLogger(__name__)


class EngineMonitor:
    """One bundle and its current engine process; `number` distinguishes the engines of a bundle."""

    def __init__(
        self,
        settings: ProcessSettings,
        directory: Path,
        timeouts: Timeouts,
        on_change: Callable[[], None],
        number: int = 1,
    ) -> None:
        self.name, self.number = settings.name, number
        self.restarts = 0
        self.child: EngineChild | None = None
        self.info: dict[str, Any] = {}
        """The report of the latest engine when it was ready; it stays while that engine is being replaced."""
        self._settings, self._directory, self._timeouts, self._on_change = settings, directory, timeouts, on_change
        self._generation = 0
        self._backoff = Backoff()
        self._retiring: set[asyncio.Task[bool]] = set()
        self._changing = asyncio.Lock()
        self._replaced = asyncio.Event()
        self._draining = False

    @property
    def healthy(self) -> bool:
        return self.child is not None and self.child.answers_pings

    async def start(self) -> None:
        """Start the first engine; an error here is reported to the operator."""
        self.child = await self._next_engine()
        self._on_change()

    async def run(self) -> None:
        """Watch until cancelled: an engine that dies or hangs is restarted at once; only failed starts are followed by a
        pause.
        """
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
            said = {"model": self.name, "reason": reason, "restarts": self.restarts, "pause_s": self._backoff.delay_s}
            event(_log, logging.ERROR, "engine died", said)

    async def _until_dead_or_replaced(self, child: EngineChild) -> str | None:
        """Why the engine has to be replaced; None when a reload has replaced it."""
        self._replaced.clear()
        watching = asyncio.create_task(child.watch(self._timeouts.hang_s))
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
        task = asyncio.create_task(child.drain(self._timeouts.drain_s))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _restart(self) -> None:
        while self.child is None and not self._draining:
            await asyncio.sleep(self._backoff.delay_s)
            async with self._changing:  # a reload at the same time may be faster
                try:
                    self.child = self.child or await self._next_engine()
                except (ServeError, BundleError) as error:
                    self._backoff.start_failed()
                    said = {"model": self.name, "reason": str(error), "pause_s": self._backoff.delay_s}
                    event(_log, logging.ERROR, "engine did not start", said)
                else:
                    self._backoff.start_succeeded()
                    event(_log, logging.INFO, "engine replaced", {"model": self.name, "restarts": self.restarts})
        self._on_change()

    async def _next_engine(self) -> EngineChild:
        """Symbolic links are followed here and not earlier, so that a reload serves what the link points to now."""
        self._generation += 1
        listens_at = self._directory / f"{self.name}-{self.number}-{self._generation}.sock"
        settings = dataclasses.replace(self._settings, bundle=self._settings.bundle.resolve())
        child = await EngineChild.start(settings.to_json(), listens_at, self._timeouts.start_s)
        self.info = child.info
        return child
