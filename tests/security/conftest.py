from __future__ import annotations

from collections.abc import Iterator

import pytest

from served import Caller, Server


@pytest.fixture
def server_is_unimpressed(server: Server, caller: Caller) -> Iterator[None]:
    """After the test: the same processes, and a right answer."""
    before = server.children()
    yield
    assert server.children() == before
    assert caller.translate(["It is raining."], cache=False).best == caller.translate(["It is raining."]).best
