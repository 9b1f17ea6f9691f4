from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_triton import ScriptedTriton

from dragoman.client import RetryPolicy, Translator


@pytest.fixture
def triton() -> Iterator[ScriptedTriton]:
    server = ScriptedTriton()
    yield server
    server.stop()


@pytest.fixture
def other_triton() -> Iterator[ScriptedTriton]:
    server = ScriptedTriton()
    yield server
    server.stop()


@pytest.fixture
def eager() -> RetryPolicy:
    """Retries without long waits, so that tests are quick."""
    return RetryPolicy(first_wait_s=0.001, longest_wait_s=0.002, connect_timeout_s=0.1)


@pytest.fixture
def translator(triton: ScriptedTriton, eager: RetryPolicy) -> Iterator[Translator]:
    with Translator(triton.url, retry=eager, timeout_s=60) as translator:
        yield translator


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits for something to become true, and fails when it does not."""

    def wait(holds: Callable[[], bool], timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    return wait


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A file of 200 lines."""
    path = tmp_path / "book.en"
    path.write_text("".join(f"line {number}\n" for number in range(1, 201)), encoding="utf-8")
    return path
