"""The collector of reference cycles runs at rest, and seldom otherwise."""

from __future__ import annotations

import pytest

from dragoman.serving.process import loop
from dragoman.serving.process.loop import GarbageCollector


class Collections:
    """In the place of the module `gc`."""

    def __init__(self) -> None:
        self.count, self.is_enabled = 0, True

    def collect(self) -> None:
        self.count += 1

    def freeze(self) -> None:
        pass

    def disable(self) -> None:
        self.is_enabled = False


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Collections:
    collections = Collections()
    monkeypatch.setattr(loop, "gc", collections)
    return collections


def test_it_runs_at_rest_and_seldom_otherwise(collections: Collections) -> None:
    seconds = [0.0]
    collector = GarbageCollector(clock=lambda: seconds[0])
    assert (collections.count, collections.is_enabled) == (1, False)
    for now_s, at_rest, count in ((1.0, True, 1), (30.0, False, 1), (31.0, True, 2), (32.0, True, 2), (700.0, False, 3)):
        seconds[0] = now_s
        collector.run(at_rest=at_rest)
        assert collections.count == count, now_s
