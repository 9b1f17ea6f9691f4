"""Many calls at once, each within every limit, take no more of an engine than one of each kind may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.bloat import FLOODS, flooded
from hostile.deaths import Deaths
from served import Server


@pytest.fixture(scope="module")
def watched(reference_bundle: Path) -> Iterator[tuple[Server, Deaths]]:
    """A server of its own: what malloc keeps after a flood is not the other tests' to wonder about."""
    with Server.start([f"en-de={reference_bundle}"]) as server, Deaths(server) as deaths:
        yield server, deaths


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_takes_no_memory(watched: tuple[Server, Deaths], name: str) -> None:
    (row,) = flooded(*watched, (name,))
    assert not row.failed, row
