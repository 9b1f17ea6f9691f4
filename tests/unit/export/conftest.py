"""Graphs that only these tests need; those that others share are in the conftest.py of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from exported_graphs import Exported, export


@pytest.fixture(scope="session")
def tiny_int8(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    return export(tmp_path_factory.mktemp("graphs") / "int8", tiny_checkpoint, ("native",), "int8")
