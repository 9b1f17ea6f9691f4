"""Calls over gRPC for asyncio: the same rules as transport.py, awaited instead of blocked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from dragoman.client.channels import PROBE_TIMEOUT_S, SILENCE_S, Channel, Connection, Stub, open_channels_async, stub_of
from dragoman.client.failures import Failure, hung, read_status
from dragoman.client.messages import Message, Reply
from dragoman.client.requests import Build
from dragoman.client.retry import Attempts, RetryBudget, RetryPolicy
from dragoman.client.servers import Servers
from dragoman.client.streams import GRPC_ERRORS, StreamReader
from dragoman.errors import Cancelled, UsageError

__all__ = ["AsyncTransport"]

AioCall = Any
"""A call of grpc.aio; it has no types."""


class AsyncTransport:
    """One channel a server, made in the loop of the first call and bound to it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channels: list[Channel] = []
        self._stubs: list[Stub] = []
        self._probes: set[asyncio.Task[None]] = set()
        self._closed = False
        self._budget = RetryBudget(connection.retry)
        self.servers = Servers(len(connection.addresses.targets))

    async def close(self) -> None:
        """End every call in flight and all connections."""
        self._closed = True
        for probe in self._probes:
            probe.cancel()
        for channel in self._channels:
            await channel.close()

    async def call(self, build: Build, timeout_s: float, policy: RetryPolicy | None = None) -> Reply:
        """The answer of one inference; an error of dragoman.errors otherwise."""
        return Reply(await self.response(build, timeout_s, policy))

    async def response(self, build: Build, timeout_s: float, policy: RetryPolicy | None = None) -> Message:
        """The same as it came, for a caller who will read it later."""
        attempts = self.attempts(timeout_s, policy)
        while True:
            remaining_s = attempts.remaining_s
            call = self._stub(attempts.server).ModelInfer(build(remaining_s), timeout=remaining_s)
            outcome = await self._outcome(self._watched(call, attempts.server), attempts.server)
            if not isinstance(outcome, Failure):
                attempts.answered()
                return outcome
            await asyncio.sleep(attempts.failed(outcome))

    async def stream(self, build: Build, timeout_s: float, reader: StreamReader) -> AsyncGenerator[str, None]:
        """The pieces of a streamed translation; closing the iterator cancels the call."""
        attempts = self.attempts(timeout_s)
        while True:
            failure = await self._probe_if_silent(attempts.server)
            if failure is None:
                remaining_s = attempts.remaining_s
                requests = iter([build(remaining_s)])
                call = self._stub(attempts.server).ModelStreamInfer(requests, timeout=remaining_s, metadata=GRPC_ERRORS)
                try:
                    while not reader.ended and failure is None:
                        response = await self._outcome(_next_response(call), attempts.server)
                        piece = response if isinstance(response, Failure) else reader.read(response)
                        if isinstance(piece, Failure):
                            failure = piece
                        elif piece:
                            yield piece
                finally:
                    call.cancel()
            if failure is None:
                attempts.answered()
                return
            if reader.text:  # what the caller has seen can't be unsaid
                raise failure.error
            await asyncio.sleep(attempts.failed(failure))

    async def infer_together(self, requests: list[Message], server: int, timeout_s: float) -> list[Message] | Failure:
        """The responses of several inferences sent to one server at once, without retries; or the first failure."""
        calls = [self._stub(server).ModelInfer(request, timeout=timeout_s) for request in requests]
        outcomes = [await self._outcome(call, server) for call in calls]
        return next((outcome for outcome in outcomes if isinstance(outcome, Failure)), outcomes)

    async def ask(self, method: str, request: Message, server: int, timeout_s: float) -> Message:
        """One plain call of Triton's service to one server, without retries."""
        outcome = await self._outcome(getattr(self._stub(server), method)(request, timeout=timeout_s), server)
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome

    def address(self, server: int) -> str:
        """How the server is called in messages."""
        return self._connection.addresses.targets[server]

    def _stub(self, server: int) -> Stub:
        if self._closed:
            raise UsageError("this translator is closed; make a new one")
        if not self._stubs:
            self._channels = open_channels_async(self._connection)
            self._stubs = [stub_of(channel) for channel in self._channels]
        return self._stubs[server]

    def attempts(self, timeout_s: float, policy: RetryPolicy | None = None) -> Attempts:
        """The tries of a new call; servers whose rest is over are probed on the way."""
        for server in self.servers.due_for_probe():
            probe = asyncio.ensure_future(self._revive(server))
            self._probes.add(probe)  # the loop itself holds tasks only weakly
            probe.add_done_callback(self._probes.discard)
        if policy is None:
            return Attempts(self._connection.retry, self._budget, self.servers, timeout_s)
        return Attempts(policy, RetryBudget(policy), self.servers, timeout_s)

    async def _outcome(self, call: Awaitable[Message], server: int) -> Message | Failure:
        """What `call` gives, or the Failure it ended with."""
        try:
            return await call
        except grpc.RpcError as error:
            return read_status(error.code(), error.details(), self.address(server))
        except asyncio.CancelledError:
            if not self._closed or _is_cancelled():
                raise
        except grpc.aio.UsageError:  # how gRPC says that the channel was closed meanwhile
            pass
        return Failure(Cancelled("the translator was closed during the call"))

    async def _watched(self, call: AioCall, server: int) -> Message | Failure:
        """The response of `call`; where there is another server to go to, a hung one is not waited for."""
        if len(self.servers) == 1:
            return await call
        waiting = asyncio.ensure_future(_response(call))
        try:
            while not (await asyncio.wait({waiting}, timeout=SILENCE_S))[0]:
                if await self._is_hung(server):
                    return hung(self.address(server), self.servers.silent_s(server))
            return await waiting
        finally:
            if not waiting.done():
                waiting.cancel()
                call.cancel()

    async def _is_hung(self, server: int) -> bool:
        if self.servers.is_down(server):
            return True  # another call has found out
        if self.servers.silent_s(server) < SILENCE_S:
            return False
        request = service_pb2.ServerLiveRequest()
        outcome = await self._outcome(self._stub(server).ServerLive(request, timeout=PROBE_TIMEOUT_S), server)
        if isinstance(outcome, Failure):
            return True
        self.servers.heard(server)
        return False

    async def _probe_if_silent(self, server: int) -> Failure | None:
        # One that is down is asked only when all are: then there is nothing to lose.
        if len(self.servers) > 1 and not self.servers.is_down(server) and await self._is_hung(server):
            return hung(self.address(server), self.servers.silent_s(server))
        return None

    async def _revive(self, server: int) -> None:
        request = service_pb2.ServerReadyRequest()
        outcome = await self._outcome(self._stub(server).ServerReady(request, timeout=PROBE_TIMEOUT_S), server)
        well = not isinstance(outcome, Failure) and outcome.ready
        (self.servers.heard if well else self.servers.down)(server)


def _is_cancelled() -> bool:
    """Whether somebody cancelled the task, not only the call that it waits for; Python 3.10 can't tell."""
    task = asyncio.current_task()
    return task is not None and bool(getattr(task, "cancelling", lambda: 0)())


async def _response(call: AioCall) -> Message:
    return await call


async def _next_response(call: AioCall) -> Message | None:
    response = await call.read()
    return None if response is grpc.aio.EOF else response
