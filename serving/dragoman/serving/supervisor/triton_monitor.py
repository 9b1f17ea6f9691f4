"""Keeps a tritonserver running: replaces it when it ends, falls silent, or leaves real requests unanswered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from dragoman.errors import ServeError
from dragoman.serving.logs import event
from dragoman.serving.supervisor.backoff import Backoff
from dragoman.serving.supervisor.engine_monitor import EngineMonitor
from dragoman.serving.supervisor.liveness import until_silent
from dragoman.serving.supervisor.route_publisher import RoutePublisher
from dragoman.serving.supervisor.triton_child import TritonChild
from dragoman.serving.triton.flags import TritonFlags
from dragoman.serving.triton.installation import Installation
from dragoman.serving.triton.probe import Probe, ProbeFailed

__all__ = ["TritonMonitor"]

_log = logging.getLogger(__name__)
_PROBE_INTERVAL_S = 2.0
_PROBE_TIMEOUT_S = 3.0
_FAILED_PROBES = 2
_FIRST_ANSWER_S = 30.0
"""The first translation of a Triton: on a machine where everything starts at the same time it takes long."""


class TritonMonitor:
    """One Triton and the route publisher that its backend connects to."""

    def __init__(
        self,
        installation: Installation,
        flags: TritonFlags,
        routes: RoutePublisher,
        engines: Sequence[EngineMonitor],
        *,
        probe: Probe,
        on_change: Callable[[], None],
    ) -> None:
        self.restarts = 0
        self.child: TritonChild | None = None
        self._installation, self._flags, self._routes = installation, flags, routes
        self._engines, self._probe, self._on_change = engines, probe, on_change
        self._bundles = list(dict.fromkeys(engine.name for engine in engines))
        self._backoff = Backoff()
        self._start_timeout_s = 0.0

    async def start(self, timeout_s: float) -> None:
        """Start Triton and return when every bundle has answered a real request through it."""
        self._start_timeout_s = timeout_s
        self.child = await TritonChild.start(self._installation, self._flags, self._routes.socket)
        await self.child.wait_until_listening(self._probe, timeout_s)
        try:
            for name in self._bundles:
                await self._probe.translate(name, _FIRST_ANSWER_S)
        except ProbeFailed as error:
            raise ServeError(f"the first translation through Triton failed: {error}") from None

    async def run(self) -> None:
        """Watch until cancelled: a Triton that fails is restarted at once; only failed starts are followed by a pause."""
        while True:
            if self.child is None:
                return
            reason = await self._until_useless(self.child)
            self.restarts += 1
            self._on_change()  # the metrics of the next Triton begin with this table
            said = {"reason": reason, "restarts": self.restarts, "pause_s": self._backoff.delay_s}
            event(_log, logging.ERROR, "triton failed", said)
            await self._replace()
            event(_log, logging.INFO, "triton replaced", {"restarts": self.restarts})

    async def kill(self) -> None:
        if self.child is not None:
            await self.child.kill()

    async def _until_useless(self, child: TritonChild) -> str:
        reasons = {
            asyncio.create_task(child.process.wait()): "it ended",
            asyncio.create_task(self._routes.lost.wait()): "its backend is gone",
            asyncio.create_task(until_silent(self._probe)): "it fell silent",
            asyncio.create_task(self._until_unanswered()): "a real request got no answer",
        }
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            ended, reason = next((task, reason) for task, reason in reasons.items() if task.done())
            error = ended.exception()
            if error is not None:
                _log.error("a check of triton failed", exc_info=error)
                return f"a check of it failed: {error}"
            return reason
        finally:
            for task in reasons:
                task.cancel()
            await asyncio.gather(*reasons, return_exceptions=True)

    async def _until_unanswered(self) -> None:
        """Probe each bundle in turn through gRPC; silence counts only while its engines themselves are well."""
        failures = 0
        while failures < _FAILED_PROBES:
            await asyncio.sleep(_PROBE_INTERVAL_S)
            for name in self._bundles:
                well_before = self._is_well(name)
                try:
                    await self._probe.translate(name, _PROBE_TIMEOUT_S)
                    failures = 0
                except ProbeFailed as error:
                    if well_before and self._is_well(name):
                        failures += 1
                        event(_log, logging.WARNING, "probe failed", {"model": name, "reason": str(error)})

    def _is_well(self, bundle: str) -> bool:
        return all(engine.healthy for engine in self._engines if engine.name == bundle)

    async def _replace(self) -> None:
        while True:
            await self.kill()
            self._routes.forget_backend()
            await asyncio.sleep(self._backoff.delay_s)
            try:
                await self.start(self._start_timeout_s)
            except ServeError as error:
                self._backoff.start_failed()
                event(_log, logging.ERROR, "triton did not start", {"reason": str(error), "pause_s": self._backoff.delay_s})
            else:
                self._backoff.start_succeeded()
                return
