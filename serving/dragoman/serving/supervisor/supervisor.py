"""The life of a server: start everything, say that it is ready, keep it alive, drain it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from dragoman.errors import ServeError
from dragoman.serving.config import ServerConfig
from dragoman.serving.logs import event
from dragoman.serving.supervisor.keeper import EngineKeeper
from dragoman.serving.supervisor.route_publisher import RoutePublisher
from dragoman.serving.supervisor.triton_keeper import TritonKeeper
from dragoman.serving.triton.installation import find_installation, model_repository
from dragoman.serving.triton.probe import Probe
from dragoman.serving.triton.routes import RoutingTable
from dragoman.wire import WIRE_VERSION

__all__ = ["Announcer", "Supervisor"]

_log = logging.getLogger(__name__)
_TRITON_STOP_S = 15.0
_LONGEST_SOCKET_PATH = 107


class Announcer(Protocol):
    """Who tells the operator what happens."""

    def engine_ready(self, name: str, info: dict[str, Any]) -> None:
        """An engine has translated something; `info` is what it said of itself."""

    def serving(self) -> None:
        """Every bundle has answered through gRPC."""

    def draining(self) -> None:
        """A signal asked us to stop."""

    def stopped(self) -> None:
        """Nothing of the server is left."""


class Supervisor:
    """Owns one server from its first process to its last file.

    Engines and Triton are siblings: one may die without the other, and each is replaced alone.
    """

    def __init__(self, config: ServerConfig, announcer: Announcer) -> None:
        self._config, self._announcer = config, announcer
        self._stop, self._stop_now, self._reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._draining = False

    async def run(self) -> None:
        """Serve until a signal says otherwise; everything it made is gone when it returns, however it returns."""
        self._listen_for_signals()
        directory = Path(tempfile.mkdtemp(prefix="dragoman-"))  # 0700: sockets and secrets are ours alone
        try:
            self._lay_out(directory)
            await self._routes.open()
            try:
                await self._unless(self._stop, self._start())
                if not self._stop.is_set():
                    self._announcer.serving()
                    await self._unless(self._stop, self._keep())
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
        self._routes = RoutePublisher(directory / "routes.sock", RoutingTable(bundles=config.bundle_names, limits=config.limits))
        self._engines = [
            EngineKeeper(config.engine_settings(bundle), directory, config.times, self._publish, number)
            for bundle in config.bundles
            for number in range(1, config.engines + 1)
        ]
        installation = find_installation(directory / "triton")
        self._triton = TritonKeeper(
            installation,
            config.triton_flags(model_repository(), installation.backend_directory),
            self._routes,
            self._engines,
            Probe(config.grpc, config.probe_id, config.tls, config.tls_server_name),
        )

    async def _start(self) -> None:
        """Engines and Triton at the same time: Triton's models wait for their engines."""
        await self._all([self._start_engines(), self._triton.start(self._config.times.start_s)])

    async def _start_engines(self) -> None:
        await self._all(engine.start() for engine in self._engines)
        for engine in self._engines:
            if engine.number == 1:
                self._announcer.engine_ready(engine.name, engine.info)

    async def _keep(self) -> None:
        await self._all([self._triton.keep(), self._reload_on_request(), *(engine.keep() for engine in self._engines)])

    async def _reload_on_request(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            event(_log, logging.INFO, "reloading")
            for engine in self._engines:
                await engine.reload()

    async def _drain(self) -> None:
        """Refuse newcomers, finish what was admitted, then end: engines first, for Triton carries their answers."""
        self._draining = True
        self._publish()
        self._announcer.draining()
        drain_s = self._config.times.drain_s
        await self._unless(self._stop_now, self._all(engine.drain(drain_s) for engine in self._engines))
        await self._unless(self._stop_now, self._triton.stop(_TRITON_STOP_S))
        self._announcer.stopped()

    def _publish(self) -> None:
        """Tell the Triton backend what is true now."""
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
                status=self._status(),
            )
        )

    def _status(self) -> dict[str, Any]:
        """STATUS of the wire contract."""
        config = self._config
        engines = {engine.name: engine for engine in self._engines}
        return {
            "wire_version": WIRE_VERSION,
            "server": version("dragoman"),
            "metrics": f"http://{config.metrics}/metrics" if config.metrics else None,
            "bundles": [{"name": name, "version": engines[name].info.get("version")} for name in config.bundle_names],
        }

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
