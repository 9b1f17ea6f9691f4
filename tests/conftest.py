"""What tests of the whole share: a real bundle of the reference model, and real servers."""

from __future__ import annotations

import os

# Tiny models gain nothing from torch's second thread, whose waiting costs the other tests a core. Set before torch comes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from leftovers import MARK, Guard
from once import made_once
from served import Caller, Server

if TYPE_CHECKING:
    from exported_graphs import Exported

# A shell starts background jobs with SIGINT ignored, and their children inherit that: tests of Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about the machine than about what is tested.
# The same examples in every run, so that what fails fails again; --hypothesis-profile=random looks for others.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dragoman", settings.get_profile("random"), derandomize=True)
settings.load_profile("dragoman")

TESTS = Path(__file__).resolve().parent
REFERENCE_MODEL = TESTS.parent / "models" / "tatoeba-en-de"


_guard = pytest.StashKey[Guard]()
_left = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """The first process of a run watches over it; workers, and runs that tests start, belong to it."""
    if MARK not in os.environ:
        config.stash[_guard] = Guard.start()


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """When the workers have ended, nothing that they started may be left."""
    try:
        return (yield)
    finally:
        if _guard in session.config.stash and (left := session.config.stash[_guard].stop()):
            session.config.stash[_left] = left
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for process in config.stash.get(_left, []):
        terminalreporter.write_line(f"the tests left a process behind: {process}", red=True)


SLOW_FOLDERS = ("deploy", "integration", "chaos", "security", "property")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow files come first: when files are tested side by side, none is left to run alone at the end."""
    items.sort(key=_slowness)


def _slowness(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return SLOW_FOLDERS.index(folder) if folder in SLOW_FOLDERS else len(SLOW_FOLDERS)


@pytest.fixture(scope="session")
def reference_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference model, exported once a run; DRAGOMAN_TEST_BUNDLE names one to use instead."""
    if given := os.environ.get("DRAGOMAN_TEST_BUNDLE"):
        return Path(given)
    return made_once(tmp_path_factory, "reference", _export) / "en-de"


@pytest.fixture(scope="session")
def stock_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with standard operators only, as where the custom ones can't be built."""
    return made_once(tmp_path_factory, "stock", lambda directory: _export(directory, "--lowering", "portable")) / "en-de"


def _export(directory: Path, *flags: str) -> None:
    output, few = directory / "en-de", directory / "sentences.txt"
    few.write_text("Where is the station?\nTom has never been there before.\nIt is raining.\n", encoding="utf-8")
    # In a process of its own, so that torch stays out of this one. Tests of the export check with all sentences.
    dragoman = Path(sys.executable).with_name("dragoman")
    command = [str(dragoman), "export", str(REFERENCE_MODEL), "--output", str(output), "--verify-file", str(few), *flags]
    exported = subprocess.run(command, capture_output=True, text=True, check=False)
    assert exported.returncode == 0, exported.stdout + exported.stderr


@pytest.fixture(scope="session")
def server(reference_bundle: Path) -> Iterator[Server]:
    """A server of the reference model that all tests share: leave it as you found it."""
    with Server.start([f"en-de={reference_bundle}"]) as started:
        yield started


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    """A connection to that server."""
    caller = server.caller()
    yield caller
    caller.close()


# Graphs to test with. Tracing takes seconds a graph, so each set is exported once a run: leave it as you found it.
# Imported where they are needed, so that torch stays out of tests that have no use for it.


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer on each side, two heads of 8."""
    from random_marian import write_marian

    return made_once(tmp_path_factory, "tiny", lambda directory: write_marian(directory / "model")) / "model"


@pytest.fixture(scope="session")
def tiny_fp32(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    from exported_graphs import LOWERINGS, exported_once

    return exported_once(tmp_path_factory, "fp32", tiny_checkpoint, LOWERINGS)


@pytest.fixture(scope="session")
def tiny_fp16(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    from exported_graphs import LOWERINGS, exported_once

    return exported_once(tmp_path_factory, "fp16", tiny_checkpoint, LOWERINGS, "fp16")


@pytest.fixture(scope="session")
def tiny_bf16(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Exported:
    from exported_graphs import exported_once

    return exported_once(tmp_path_factory, "bf16", tiny_checkpoint, ("portable",), "bf16")
