"""Graphs to test with. Tracing takes seconds a graph, so each set is exported once and shared: leave it as you found it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exported_graphs import Exported, export
from random_marian import write_marian


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer a side, heads of 8: what ONNX Runtime's fused attention takes."""
    return write_marian(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def tiny_fp32(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    return export(tmp_path_factory.mktemp("graphs") / "fp32", tiny_checkpoint, ("cpu", "portable"))


@pytest.fixture(scope="session")
def tiny_fp16(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    return export(tmp_path_factory.mktemp("graphs") / "fp16", tiny_checkpoint, ("cpu", "portable"), "fp16")


@pytest.fixture(scope="session")
def tiny_int8(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    return export(tmp_path_factory.mktemp("graphs") / "int8", tiny_checkpoint, ("cpu",), "int8")
