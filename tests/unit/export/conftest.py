"""Graphs that only these tests need; those that others share are in the conftest.py of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from exported_graphs import Exported, exported_once
from random_marian import write_marian


@pytest.fixture(scope="session")
def tiny_int8(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    return exported_once(tmp_path_factory, "int8", tiny_checkpoint, ("native",), "int8")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small Marian model of the test, which it may damage."""
    return write_marian(tmp_path / "model")
