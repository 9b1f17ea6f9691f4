"""The life of a server: start everything, report that it is ready, keep it alive, drain it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, Protocol

from dragoman.errors import ServeError
from dragoman.serving.config import ServerConfig
from dragoman.serving.logs import event
from dragoman.serving.supervisor.engine_monitor import EngineMonitor
from dragoman.serving.supervisor.exposure import require_loopback
from dragoman.serving.supervisor.open_connections import connections_to
from dragoman.serving.supervisor.route_publisher import RoutePublisher
from dragoman.serving.supervisor.status import server_status
from dragoman.serving.supervisor.triton_monitor import TritonMonitor
from dragoman.serving.triton.installation import find_installation, model_repository
from dragoman.serving.triton.probe import Probe
from dragoman.serving.triton.routes import RoutingTable

__all__ = ["Announcer", "Supervisor"]

_log = logging.getLogger(__name__)
_LINGER_S = 1.0
"""How long callers may stay connected after the drain, so that they receive DRAINING before their connection is closed."""
_UNSENT_S = 10.0
"""How long a caller may take to read its answer."""
_POLL_S = 0.05
_LONGEST_SOCKET_PATH = 107


class Announcer(Protocol):
    """Reports to the operator what happens."""

    def engine_ready(self, name: str, info: dict[str, Any]) -> None:
        """An engine has translated something; `info` is its report."""

    def serving(self) -> None:
        """Every bundle has answered through gRPC."""

    def draining(self) -> None:
        """A signal to stop arrived."""

    def stopped(self) -> None:
        """Nothing of the server is left."""


class Supervisor:
    """Owns one server from its first process to its last file.

    Engines and Triton are siblings: each can die and be replaced without the other.
    """

    def __init__(self, config: ServerConfig, announcer: Announcer) -> None:
        self._config, self._announcer = config, announcer
        self._stop, self._stop_now, self._reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._draining = False

    async def run(self) -> None:
        """Serve until a signal arrives; everything it made is gone when it returns, however it returns."""
        self._listen_for_signals()
        directory = Path(tempfile.mkdtemp(prefix="dragoman-"))  # mode 0700: it holds sockets and secrets
        try:
            self._lay_out(directory)
            await self._routes.open()
            try:
                await self._unless(self._stop, self._start())
                if not self._stop.is_set():
                    self._announcer.serving()
                    await self._unless(self._stop, self._monitor())
                await self._drain()
            finally:
                await self._all([self._triton.kill(), *(engine.kill() for engine in self._engines)])
                self._routes.close()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _lay_out(self, directory: Path) -> None:
        config = self._config
        longest = max(len(name) for name in config.bundle_names) + len(f"{directory}/-999-9999.sock")
        if longest > _LONGEST_SOCKET_PATH:
            raise ServeError(f"{directory} is too long a path for unix sockets; set TMPDIR to a shorter one")
        self._routes = RoutePublisher(
            directory / "routes.sock", RoutingTable(bundles=config.bundle_names, limits=config.limits)
        )
        self._engines = [
            EngineMonitor(config.engine_settings(bundle), directory, config.timeouts, self._publish, number)
            for bundle in config.bundles
            for number in range(1, config.engines + 1)
        ]
        installation = find_installation(directory / "triton")
        require_loopback(config, installation)
        self._triton = TritonMonitor(
            installation,
            config.triton_flags(model_repository(), installation.backend_directory),
            self._routes,
            self._engines,
            probe=Probe(config.grpc, config.probe_id, config.tls, config.tls_server_name),
            on_change=self._publish,
        )

    async def _start(self) -> None:
        """Engines and Triton at the same time: Triton's models wait for their engines."""
        await self._all([self._start_engines(), self._triton.start(self._config.timeouts.start_s)])

    async def _start_engines(self) -> None:
        await self._all(engine.start() for engine in self._engines)
        for engine in self._engines:
            if engine.number == 1:
                self._announcer.engine_ready(engine.name, engine.info)

    async def _monitor(self) -> None:
        await self._all([self._triton.run(), self._reload_on_request(), *(engine.run() for engine in self._engines)])

    async def _reload_on_request(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            event(_log, logging.INFO, "reloading")
            for engine in self._engines:
                await engine.reload()

    async def _drain(self) -> None:
        """Refuse new requests, finish what was admitted, then end: engines first, because Triton carries their answers.

        Triton is killed. Its own way to end unloads the models while it still takes requests, which it then answers with
        NOT_FOUND as if the caller had made a mistake.
        """
        self._draining = True
        self._publish()
        self._announcer.draining()
        drain_s = self._config.timeouts.drain_s
        await self._unless(self._stop_now, self._all(engine.drain(drain_s) for engine in self._engines))
        await self._unless(self._stop_now, self._linger())
        await self._triton.kill()
        self._announcer.stopped()

    async def _linger(self) -> None:
        """Wait until every caller has read its answer and closed its connection, or the time is up."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        while connections := connections_to(self._config.grpc.port):
            unsent = any(connection.unsent_bytes for connection in connections)
            if clock() - began_s > (_UNSENT_S if unsent else _LINGER_S):
                return
            await asyncio.sleep(_POLL_S)

    def _publish(self) -> None:
        """Publish the current routes to the Triton backend."""
        answering = [(engine.name, str(engine.child.listens_at)) for engine in self._engines if engine.child]
        names = self._config.bundle_names
        self._routes.publish(
            RoutingTable(
                bundles=names,
                sockets={name: tuple(socket for bundle, socket in answering if bundle == name) for name in names},
                draining=self._draining,
                hold_s=self._config.hold_s,
                restarts={"engine": sum(engine.restarts for engine in self._engines), "triton": self._triton.restarts},
                limits=self._config.limits,
                status=server_status(self._introductions(), self._config.metrics),
            )
        )

    def _introductions(self) -> dict[str, dict[str, Any]]:
        """The report of an engine of each bundle when it was ready."""
        return {engine.name: engine.info for engine in self._engines if engine.number == 1}

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            (self._stop_now if self._stop.is_set() else self._stop).set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)

    @staticmethod
    async def _all(work: Iterable[Awaitable[object]]) -> None:
        """Run everything together; the first failure ends the rest and is raised."""
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _unless(stop: asyncio.Event, work: Awaitable[None]) -> None:
        """Run `work` until it ends, fails or `stop` is set."""
        task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for each in (task, stopping):
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(task, stopping, return_exceptions=True)
