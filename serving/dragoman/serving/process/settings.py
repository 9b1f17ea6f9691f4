"""The settings that an engine process is started with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.serving.runtime.settings import Device
from dragoman.wire import Limits

__all__ = ["EngineSettings", "ProcessSettings"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the operator chose for every engine; None leaves it to the engine."""

    device: Device = "cpu"
    gpu: int = 0
    threads: int | None = None
    max_batch: int | None = None
    max_queue: int | None = None
    max_sessions: int | None = None
    max_memory_bytes: int | None = None
    response_cache_bytes: int = 32 << 20


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """One bundle, and how to serve it.

    Requests whose id is `probe_id` are the supervisor's own and are not counted.
    """

    name: str
    bundle: Path
    engine: EngineSettings = field(default_factory=EngineSettings)
    limits: Limits = field(default_factory=Limits)
    probe_id: str = ""
    log_level: str = "info"
    log_requests: bool = False
    glossaries: dict[str, str] = field(default_factory=dict)
    """TSV files by the name that requests choose them by; read when the process starts."""

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "bundle": str(self.bundle)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ProcessSettings:
        return cls(
            **{
                **raw,
                "bundle": Path(raw["bundle"]),
                "engine": EngineSettings(**raw["engine"]),
                "limits": Limits(**raw["limits"]),
            }
        )
