"""Who calls the shared server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dragoman.client import Translator
from served import Caller, Server


@pytest.fixture(scope="module")
def translator(server: Server) -> Iterator[Translator]:
    with Translator(server.grpc) as translator:
        yield translator


@pytest.fixture(scope="module")
def caller(server: Server) -> Iterator[Caller]:
    caller = server.caller()
    yield caller
    caller.close()
