"""What the operator sees on the terminal: a short summary and one line when the server is ready."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

from dragoman.serving.config import ServerConfig

__all__ = ["Console"]


class Console:
    """Prints to standard output what the supervisor does; logs go to standard error."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._started_s = time.monotonic()
        names = ", ".join(f"{bundle.name} ({bundle.path})" for bundle in config.bundles)
        _print(f"dragoman {version('dragoman')}: starting {names}")

    def engine_ready(self, name: str, info: dict[str, Any]) -> None:
        size = f"{info['parameters'] / 1e6:,.1f} M parameters"
        _print(
            f"  {name:<10} {info['model']}, {info['architecture']}, {size}, {info['precision']}, version {info['version']}"
        )
        each = f"{self._config.engines} engines, each " if self._config.engines > 1 else ""
        _print(f"  {'':<10} {each}at most {info['memory_bytes'] / 2**20:,.0f} MiB: {info['memory']}")
        _print(f"  {'':<10} {each}at most {info['max_rows']} rows in a batch, {info['max_queue']} requests in the queue")

    def serving(self) -> None:
        config = self._config
        _print(f"  gRPC       {config.grpc}{_security(config)}")
        if config.http is not None:
            _print(f"  HTTP       http://{config.http}")
        if config.metrics is not None:
            _print(f"  metrics    http://{config.metrics}/metrics")
        _print(f"ready: {', '.join(config.bundle_names)} at {config.grpc} after {time.monotonic() - self._started_s:.1f} s")

    def draining(self) -> None:
        _print("draining: admitted requests are finished, new ones are refused (stop again to end now)")

    def stopped(self) -> None:
        _print("stopped")


def _security(config: ServerConfig) -> str:
    if config.tls is None:
        return ""
    return " (TLS)" if config.tls.client_roots is None else " (mutual TLS)"


def _print(line: str) -> None:
    print(line, flush=True)
