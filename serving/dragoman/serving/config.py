"""Everything `dragoman serve` was asked for, in one frozen value."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from dragoman.serving.process.settings import EngineOptions, ProcessSettings
from dragoman.serving.supervisor.keeper import KeeperTimes
from dragoman.serving.triton.flags import Address, Tls, TritonFlags
from dragoman.wire import Limits

__all__ = ["BundleSpec", "ServerConfig"]


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """A bundle and the name callers choose it by."""

    name: str
    path: Path


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
    probe_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    engine: EngineOptions = field(default_factory=EngineOptions)
    engines: int = 1
    """Engine processes of each bundle; what `engine` says holds for each of them."""
    limits: Limits = field(default_factory=Limits)
    times: KeeperTimes = field(default_factory=KeeperTimes)
    hold_s: float = 10.0
    log_level: str = "info"
    log_requests: bool = False

    @property
    def bundle_names(self) -> tuple[str, ...]:
        return tuple(bundle.name for bundle in self.bundles)

    def engine_settings(self, bundle: BundleSpec) -> ProcessSettings:
        return ProcessSettings(
            bundle.name, bundle.path, self.engine, self.limits, self.probe_id, self.log_level, self.log_requests
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
