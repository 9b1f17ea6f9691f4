"""Checkpoints that are damaged on purpose, and the messages with which they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint import CompanionFiles, read_checkpoint


def refusal(source: Path, companions: CompanionFiles | None = None, format_name: str | None = None) -> str:
    """The message of the error; fails when the checkpoint is read."""
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(source, companions=companions or CompanionFiles(), format_name=format_name)
    return str(caught.value)


def rewrite_json(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
