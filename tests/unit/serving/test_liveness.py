"""A silent Triton is noticed within seconds; a slow one is left alone, even by a supervisor that was stopped itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman.serving.supervisor.liveness import until_silent
from dragoman.serving.triton.flags import Address
from dragoman.serving.triton.probe import Probe


class Live(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers ServerLive after `delay_s`, and counts."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.answers = 0

    async def ServerLive(  # noqa: N802 - the name in Triton's protocol
        self, request: service_pb2.ServerLiveRequest, context: grpc.aio.ServicerContext
    ) -> service_pb2.ServerLiveResponse:
        await asyncio.sleep(self.delay_s)
        self.answers += 1
        return service_pb2.ServerLiveResponse(live=True)


@asynccontextmanager
async def serving(live: Live) -> AsyncIterator[Probe]:
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(live, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Probe(Address("127.0.0.1", port), "probe")
    finally:
        await server.stop(None)


def run(body: Callable[[Live, Probe], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        live = Live()
        async with serving(live) as probe:
            await body(live, probe)

    asyncio.run(main())


async def answered(live: Live, count: int) -> None:
    deadline_s = time.monotonic() + 120
    while live.answers < count:
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.01)


def test_a_server_that_falls_silent_is_noticed() -> None:
    async def body(live: Live, probe: Probe) -> None:
        watching = asyncio.create_task(until_silent(probe))
        await answered(live, 3)
        live.delay_s = 1000.0
        assert await asyncio.wait_for(watching, 120) >= 2.0

    run(body)


def test_a_server_that_is_gone_is_noticed_too() -> None:
    async def main() -> None:
        async with serving(live := Live()) as probe:
            watching = asyncio.create_task(until_silent(probe))
            await answered(live, 1)
        assert await asyncio.wait_for(watching, 120) >= 2.0

    asyncio.run(main())


def test_a_server_that_answers_slowly_is_left_alone() -> None:
    async def body(live: Live, probe: Probe) -> None:
        live.delay_s = 0.7
        watching = asyncio.create_task(until_silent(probe))
        await answered(live, 4)
        live.delay_s = 2.5  # longer than the limit for a quick server, not for this one
        await answered(live, 6)
        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run(body)


def test_a_supervisor_that_was_suspended_itself_reports_no_hang() -> None:
    async def body(live: Live, probe: Probe) -> None:
        watching = asyncio.create_task(until_silent(probe))
        await answered(live, 2)
        live.delay_s = 0.3  # the next call is under way when everything stops for longer than any limit
        await asyncio.sleep(0.3)
        time.sleep(4)  # the whole process stands still
        live.delay_s = 0.0
        before = live.answers
        await answered(live, before + 3)
        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run(body)
