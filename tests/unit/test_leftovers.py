"""A run of tests that is interrupted, terminated or killed leaves no process and no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from leftovers import MARK
from served import eventually

CONFTEST = """
import os
from leftovers import Guard

def pytest_configure(config):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.stash["guard"] = Guard.start()
"""
TEST = """
import os, pathlib, subprocess, sys, tempfile

def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    lines = f"{tempfile.mkdtemp()} {os.getpid()} {child.pid}"
    pathlib.Path("began.new").write_text(lines)
    pathlib.Path("began.new").rename("began")
    child.wait()
"""


@pytest.mark.parametrize(
    ("ended", "ending"),
    [("run", signal.SIGINT), ("run", signal.SIGTERM), ("run", signal.SIGKILL), ("worker", signal.SIGKILL)],
    ids=str,
)
def test_a_run_with_workers_leaves_nothing_however_it_ends(tmp_path: Path, ended: str, ending: signal.Signals) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_one.py").write_text(TEST)
    environment = {name: value for name, value in os.environ.items() if name != MARK and not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as run:
        began = tmp_path / "began"
        eventually(began.is_file)
        directory, *pids = began.read_text().split()
        processes = [run.pid, *map(int, pids)]
        assert all(map(psutil.pid_exists, processes))
        os.kill({"run": run.pid, "worker": processes[1]}[ended], ending)
        eventually(lambda: run.poll() is not None)
    eventually(lambda: not any(map(psutil.pid_exists, processes)))
    eventually(lambda: not Path(directory).parent.exists())
