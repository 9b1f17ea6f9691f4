"""A finished run: in memory, and as the JSON file that `--compare` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dragoman.errors import UsageError
from dragoman.loadtest.answers import Quality
from dragoman.loadtest.client_use import ClientUse
from dragoman.loadtest.figures import Figures
from dragoman.loadtest.scraper import ServerSample
from dragoman.loadtest.tally import Tally

__all__ = ["RunInfo", "RunResult", "read_result"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What was run, in words and numbers a reader needs to run it again."""

    target: str
    workload: str
    sentences: int
    load: str
    model: str | None
    beam_size: int | None
    stream: bool
    workers: int
    warm_up_s: float
    seed: int
    started: str
    interrupted: bool = False
    metrics_problem: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything that was measured."""

    info: RunInfo
    tally: Tally
    client: ClientUse
    quality: Quality
    server: tuple[ServerSample, ...] = ()

    @property
    def figures(self) -> Figures:
        return Figures.of(self.tally)

    def to_json(self) -> dict[str, object]:
        return {
            "kind": "dragoman loadtest",
            "schema": SCHEMA,
            "dragoman": version("dragoman"),
            "run": asdict(self.info),
            "figures": self.figures.to_json(),
            "quality": asdict(self.quality),
            "client": self.client.to_json(),
            "server": [sample.to_json() for sample in self.server],
            "tally": self.tally.to_json(),
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> RunResult:
        return RunResult(
            RunInfo(**raw["run"]),
            Tally.from_json(raw["tally"]),
            ClientUse.from_json(raw["client"]),
            Quality(**raw["quality"]),
            tuple(ServerSample.from_json(sample) for sample in raw["server"]),
        )


def read_result(path: Path) -> RunResult:
    """A JSON file that a run has written."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}); give a file that `dragoman loadtest` has written") from error
    if not isinstance(raw, dict) or raw.get("kind") != "dragoman loadtest":
        raise UsageError(f"{path} is not the result of a load test; give a file that `dragoman loadtest` has written")
    if raw.get("schema") != SCHEMA:
        raise UsageError(f"{path} has schema {raw.get('schema')!r} and this dragoman reads {SCHEMA}; run the test again")
    try:
        return RunResult.from_json(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is incomplete or was changed: {error!r}") from error
