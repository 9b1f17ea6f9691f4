"""The rules of a call: deadlines, retries, failover, cancellation; the same for both translators."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from tritonclient.grpc import service_pb2

from dragoman.client.calls import Calls
from dragoman.client.channels import PROBE_TIMEOUT_S, SILENCE_S, Connection
from dragoman.client.failures import Failure, hung
from dragoman.client.messages import Message
from dragoman.client.requests import Build
from dragoman.client.retry import Attempts, RetryBudget, RetryPolicy
from dragoman.client.servers import Servers
from dragoman.client.streams import StreamReader
from dragoman.errors import UsageError

__all__ = ["Transport"]


class Transport:
    """Sends requests to the servers of a connection."""

    def __init__(self, connection: Connection, calls: Calls) -> None:
        self._connection = connection
        self._budget = RetryBudget(connection.retry)
        self.calls = calls
        self.servers = Servers(len(connection.addresses.targets))

    async def infer(self, build: Build, timeout_s: float, policy: RetryPolicy | None = None) -> Message:
        """The response to one inference; an error of dragoman.errors otherwise."""
        attempts = self.attempts(timeout_s, policy)
        while True:
            outcome = await self._infer_once(build, attempts)
            if not isinstance(outcome, Failure):
                attempts.answered()
                return outcome
            await self.calls.sleep(attempts.failed(outcome))

    async def stream(self, build: Build, timeout_s: float, reader: StreamReader) -> AsyncGenerator[str, None]:
        """The pieces of a streamed translation; closing the generator cancels the call.

        A failure before the first piece is retried; after it, the caller has seen text that can't be taken back.
        """
        attempts = self.attempts(timeout_s)
        while True:
            failure = await self._probe_if_silent(attempts.server)
            if failure is None:
                address, remaining_s = self.address(attempts.server), attempts.remaining_s
                call = self.calls.stream(attempts.server, build(remaining_s), remaining_s)
                try:
                    while not reader.ended and failure is None:
                        response = await call.next()
                        failure = response if isinstance(response, Failure) else reader.read(response, address)
                        if reader.piece:
                            yield reader.piece
                finally:
                    call.cancel()
            if failure is None:
                attempts.answered()
                return
            if reader.text:
                raise failure.error
            await self.calls.sleep(attempts.failed(failure))

    async def infer_together(self, requests: list[Message], server: int, timeout_s: float) -> list[Message | Failure]:
        """What became of several inferences sent to one server at once, without retries."""
        if len(requests) == 1:
            return [await self.calls.unary(server, "ModelInfer", requests[0], timeout_s)]
        pending = [self.calls.start(server, request, timeout_s) for request in requests]
        return [await call.wait(None) for call in pending]

    async def ask(self, method: str, request: Message, server: int, timeout_s: float) -> Message:
        """One plain call of Triton's service to one server, without retries."""
        outcome = await self.calls.unary(server, method, request, timeout_s)
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome

    def address(self, server: int) -> str:
        """How the server is called in messages."""
        return self._connection.addresses.targets[server]

    def attempts(self, timeout_s: float, policy: RetryPolicy | None = None) -> Attempts:
        """The attempts of a new call; servers whose rest is over are probed beside it."""
        for server in self.servers.due_for_probe():
            self.calls.spawn(self._revive(server))
        if policy is None:
            return Attempts(self._connection.retry, self._budget, self.servers, timeout_s)
        return Attempts(policy, RetryBudget(policy), self.servers, timeout_s)

    async def _infer_once(self, build: Build, attempts: Attempts) -> Message | Failure:
        """One attempt; where there is another server to go to, a hung one is not waited for."""
        server, remaining_s = attempts.server, attempts.remaining_s
        if len(self.servers) == 1:
            return await self.calls.unary(server, "ModelInfer", build(remaining_s), remaining_s)
        call = self.calls.start(server, build(remaining_s), remaining_s)
        try:
            while (outcome := await call.wait(SILENCE_S)) is None:
                if await self._is_hung(server):
                    return hung(self.address(server), self.servers.silent_s(server))
            return outcome
        finally:
            call.cancel()

    async def _is_hung(self, server: int) -> bool:
        """Whether a server that has not answered a call for a while is dead, by probing it."""
        if self.servers.is_down(server):
            return True  # another call has found out
        if self.servers.silent_s(server) < SILENCE_S:
            return False
        request = service_pb2.ServerLiveRequest()
        if isinstance(await self.calls.unary(server, "ServerLive", request, PROBE_TIMEOUT_S), Failure):
            return True
        self.servers.mark_up(server)
        return False

    async def _probe_if_silent(self, server: int) -> Failure | None:
        """A stream can't be watched from outside, so its server is looked at before, where there is another to go to."""
        # One that is down is tried only when all are: then there is nothing to lose.
        if len(self.servers) > 1 and not self.servers.is_down(server) and await self._is_hung(server):
            return hung(self.address(server), self.servers.silent_s(server))
        return None

    async def _revive(self, server: int) -> None:
        with contextlib.suppress(UsageError):  # the translator was closed meanwhile
            outcome = await self.calls.unary(server, "ServerReady", service_pb2.ServerReadyRequest(), PROBE_TIMEOUT_S)
            is_up = not isinstance(outcome, Failure) and outcome.ready
            (self.servers.mark_up if is_up else self.servers.mark_down)(server)
