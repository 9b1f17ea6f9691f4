"""The configuration of one server: what the arguments of `dragoman serve` say."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from dragoman.serving.process.settings import EngineSettings, ProcessSettings
from dragoman.serving.triton.flags import Address, Tls, TritonFlags
from dragoman.wire import Limits

__all__ = ["BundleSpec", "ServerConfig", "Timeouts"]


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """A bundle and the name callers choose it by.

    `path` is absolute; a symbolic link in it is followed by each engine when it starts, so a reload serves its new target.
    """

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the supervisor waits for its processes, in seconds."""

    start_s: float = 120.0
    """Until a new engine or Triton must be ready."""
    hang_s: float = 3.0
    """Until a silent engine is replaced; longer for one whose steps are slow."""
    drain_s: float = 30.0
    """Until requests in progress must have finished when the server stops or an engine is replaced."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server; addresses have real ports."""

    bundles: tuple[BundleSpec, ...]
    grpc: Address
    metrics: Address | None
    admin_token: str
    http: Address | None = None
    tls: Tls | None = None
    tls_server_name: str = "localhost"
    allow_remote: bool = False
    """Let the embedded Triton listen on addresses other than loopback."""
    probe_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    engine: EngineSettings = field(default_factory=EngineSettings)
    engines: int = 1
    """Engine processes per bundle; `engine` applies to each of them."""
    limits: Limits = field(default_factory=Limits)
    timeouts: Timeouts = field(default_factory=Timeouts)
    hold_s: float = 10.0
    log_level: str = "info"
    log_requests: bool = False
    glossaries: tuple[tuple[str, Path], ...] = ()
    """Name and file of each; an engine reads them when it starts, so a reload serves what they hold then."""

    @property
    def bundle_names(self) -> tuple[str, ...]:
        return tuple(bundle.name for bundle in self.bundles)

    def engine_settings(self, bundle: BundleSpec) -> ProcessSettings:
        return ProcessSettings(
            bundle.name,
            bundle.path,
            self.engine,
            self.limits,
            self.probe_id,
            self.log_level,
            self.log_requests,
            {name: str(path) for name, path in self.glossaries},
        )

    def triton_flags(self, models: Path, backend_directory: Path) -> TritonFlags:
        return TritonFlags(
            model_repository=models,
            backend_directory=backend_directory,
            grpc=self.grpc,
            metrics=self.metrics,
            http=self.http,
            tls=self.tls,
            admin_token=self.admin_token,
        )
