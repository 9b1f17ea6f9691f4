"""What is costly to make and shared by all workers of a test run: the first that needs it makes it, the others wait."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The directory `name`, which `make` filled once for all workers of a run; it is never changed afterwards."""
    own = factory.getbasetemp()
    # Under pytest-xdist each worker has a folder of its own in that of the run.
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    shared.mkdir(exist_ok=True)
    directory = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released with the file, also when the worker is killed
        if not (done := shared / f"{name}.done").exists():
            shutil.rmtree(directory, ignore_errors=True)  # of one who failed, whose error this one will have, too
            directory.mkdir()
            make(directory)
            done.touch()
    return directory
