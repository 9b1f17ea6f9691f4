"""The stage of a test: closed with all that is on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_stage import Stage

import engine_client
from once import made_once


@pytest.fixture(scope="session", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> None:
    if engine_client.LIBRARY is None:
        directory = made_once(tmp_path_factory, "engine client", engine_client.compile_client)
        (engine_client.LIBRARY,) = directory.iterdir()


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # unix sockets have short names only
        yield Path(short)


@pytest.fixture
def stage(directory: Path) -> Iterator[Stage]:
    stage = Stage(directory)
    yield stage
    stage.close()
