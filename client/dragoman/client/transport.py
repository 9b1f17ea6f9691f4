"""Calls over gRPC, blocking: deadlines, retries, failover, cancellation. The async twin is async_transport.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from dragoman.client.channels import PROBE_TIMEOUT_S, SILENCE_S, Connection, Stub, open_channels, stub_of
from dragoman.client.failures import Failure, hung, read_status
from dragoman.client.messages import Message, Reply
from dragoman.client.requests import Build
from dragoman.client.retry import Attempts, RetryBudget, RetryPolicy
from dragoman.client.servers import Servers
from dragoman.client.streams import GRPC_ERRORS, StreamReader
from dragoman.errors import Cancelled, UsageError

__all__ = ["Pending", "Transport"]


Future = Any
"""A gRPC call that is also a future; it has no types."""


class Transport:
    """One channel a server, shared by all calls and threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channels = open_channels(connection)
        self._stubs = [stub_of(channel) for channel in self._channels]
        self._budget = RetryBudget(connection.retry)
        self.servers = Servers(len(self._channels))

    def close(self) -> None:
        """End every call in flight and all connections."""
        for channel in self._channels:
            channel.close()
        self._channels, self._stubs = [], []

    def call(self, build: Build, timeout_s: float, policy: RetryPolicy | None = None) -> Reply:
        """The answer of one inference; an error of dragoman.errors otherwise."""
        if len(self.servers) > 1:
            return Pending(self, build, timeout_s, policy).result()
        # gRPC's blocking call needs no other thread: a third cheaper than a future, but it can't be watched.
        attempts = self.attempts(timeout_s, policy)
        while True:
            outcome = self._block(build, attempts)
            if not isinstance(outcome, Failure):
                attempts.answered()
                return Reply(outcome)
            time.sleep(attempts.failed(outcome))

    def start(self, build: Build, timeout_s: float, policy: RetryPolicy | None = None) -> Pending:
        """Send the request and return at once."""
        return Pending(self, build, timeout_s, policy)

    def stream(self, build: Build, timeout_s: float, reader: StreamReader) -> Generator[str, None, None]:
        """The pieces of a streamed translation; closing the iterator cancels the call.

        A failure before the first piece is retried; after it, what the caller has seen can't be unsaid.
        """
        attempts = self.attempts(timeout_s)
        while True:
            failure = self._probe_if_silent(attempts.server)
            if failure is None:
                failure = yield from self._stream_once(build, attempts, reader)
            if failure is None:
                attempts.answered()
                return
            if reader.text:
                raise failure.error
            time.sleep(attempts.failed(failure))

    def infer_together(self, requests: list[Message], server: int, timeout_s: float) -> list[Message] | Failure:
        """The responses of several inferences sent to one server at once, without retries; or the first failure."""
        if len(requests) == 1:  # without a future, like `call`
            (request,) = requests
            outcome = self._outcome(lambda: self.stub(server).ModelInfer(request, timeout=timeout_s), server)
            return outcome if isinstance(outcome, Failure) else [outcome]
        futures = [self.stub(server).ModelInfer.future(request, timeout=timeout_s) for request in requests]
        outcomes = [self._outcome(future.result, server) for future in futures]
        return next((outcome for outcome in outcomes if isinstance(outcome, Failure)), outcomes)

    def ask(self, method: str, request: Message, server: int, timeout_s: float) -> Message:
        """One plain call of Triton's service to one server, without retries."""
        outcome = self._outcome(lambda: getattr(self.stub(server), method)(request, timeout=timeout_s), server)
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome

    def address(self, server: int) -> str:
        """How the server is called in messages."""
        return self._connection.addresses.targets[server]

    def stub(self, server: int) -> Stub:
        """Triton's service on that server."""
        if not self._stubs:
            raise UsageError("this translator is closed; make a new one")
        return self._stubs[server]

    def attempts(self, timeout_s: float, policy: RetryPolicy | None = None) -> Attempts:
        """The tries of a new call; servers whose rest is over are probed on the way."""
        for server in self.servers.due_for_probe():
            self._probe_in_background(server)
        if policy is None:
            return Attempts(self._connection.retry, self._budget, self.servers, timeout_s)
        return Attempts(policy, RetryBudget(policy), self.servers, timeout_s)

    def is_hung(self, server: int) -> bool:
        """Whether a server that has not answered a call for a while is dead, by asking it."""
        if self.servers.is_down(server):
            return True  # another call has found out
        if self.servers.silent_s(server) < SILENCE_S:
            return False
        request = service_pb2.ServerLiveRequest()
        outcome = self._outcome(lambda: self.stub(server).ServerLive(request, timeout=PROBE_TIMEOUT_S), server)
        if isinstance(outcome, Failure):
            return True
        self.servers.heard(server)
        return False

    def _block(self, build: Build, attempts: Attempts) -> Message | Failure:
        remaining_s = attempts.remaining_s
        request = build(remaining_s)
        return self._outcome(lambda: self.stub(attempts.server).ModelInfer(request, timeout=remaining_s), attempts.server)

    def _outcome(self, call: Callable[[], Message], server: int) -> Message | Failure:
        """What `call` returns, or the Failure it ended with."""
        try:
            return call()
        except grpc.RpcError as error:
            return read_status(error.code(), error.details(), self.address(server))
        except (ValueError, grpc.FutureCancelledError):  # how gRPC says that the channel was closed meanwhile
            return Failure(Cancelled("the translator was closed during the call"))

    def _stream_once(self, build: Build, attempts: Attempts, reader: StreamReader) -> Generator[str, None, Failure | None]:
        remaining_s = attempts.remaining_s
        call = self.stub(attempts.server).ModelStreamInfer(
            iter([build(remaining_s)]), timeout=remaining_s, metadata=GRPC_ERRORS
        )
        try:
            while not reader.ended:
                response = self._outcome(lambda: next(call, None), attempts.server)
                if isinstance(response, Failure):
                    return response
                piece = reader.read(response)
                if isinstance(piece, Failure):
                    return piece
                if piece:
                    yield piece
        finally:
            call.cancel()
        return None

    def _probe_if_silent(self, server: int) -> Failure | None:
        """A stream can't be watched from outside, so its server is looked at before, where there is another to go to."""
        # One that is down is asked only when all are: then there is nothing to lose.
        if len(self.servers) > 1 and not self.servers.is_down(server) and self.is_hung(server):
            return hung(self.address(server), self.servers.silent_s(server))
        return None

    def _probe_in_background(self, server: int) -> None:
        def report(future: Future) -> None:
            well = not future.cancelled() and future.exception() is None and future.result().ready
            (self.servers.heard if well else self.servers.down)(server)

        request = service_pb2.ServerReadyRequest()
        self.stub(server).ServerReady.future(request, timeout=PROBE_TIMEOUT_S).add_done_callback(report)


class Pending:
    """A request on its way: the first attempt is sent when this is made, later ones while `result` is waited for."""

    def __init__(self, transport: Transport, build: Build, timeout_s: float, policy: RetryPolicy | None) -> None:
        self._transport, self._build = transport, build
        self._attempts = transport.attempts(timeout_s, policy)
        self._future = self._send()
        self._given_up: Failure | None = None

    def result(self) -> Reply:
        """The answer; waits for it, and tries again as the policy says."""
        while True:
            outcome = self._wait()
            if not isinstance(outcome, Failure):
                self._attempts.answered()
                return Reply(outcome)
            time.sleep(self._attempts.failed(outcome))
            self._future = self._send()

    def cancel(self) -> None:
        """The answer is not wanted any more; the server is told."""
        self._future.cancel()

    def on_answer(self, notice: Callable[[], None]) -> None:
        """Call `notice` from another thread when the current attempt ends, well or not."""
        self._future.add_done_callback(lambda _: notice())

    def answered(self) -> bool:
        """Whether the current attempt has ended, so that `result` would not wait for it."""
        return self._given_up is not None or bool(self._future.done())

    def give_up_if_hung(self) -> None:
        """End the current attempt when its server is dead and there is another; `result` will go on there."""
        transport, server = self._transport, self._attempts.server
        if len(transport.servers) > 1 and not self.answered() and transport.is_hung(server):
            self._given_up = hung(transport.address(server), transport.servers.silent_s(server))
            self._future.cancel()

    def _send(self) -> Future:
        remaining_s = self._attempts.remaining_s
        return self._transport.stub(self._attempts.server).ModelInfer.future(self._build(remaining_s), timeout=remaining_s)

    def _wait(self) -> Message | Failure:
        """The response, or the Failure of this attempt; where there is another server, a hung one is not waited for."""
        patience_s = SILENCE_S if len(self._transport.servers) > 1 else None
        while True:
            given_up, self._given_up = self._given_up, None
            if given_up is not None:
                return given_up
            outcome = self._look(patience_s)
            if outcome is not None:
                return outcome
            self.give_up_if_hung()

    def _look(self, patience_s: float | None) -> Message | Failure | None:
        """What the attempt ended with; None when it has not within `patience_s`."""
        try:
            return self._future.result(timeout=patience_s)
        except grpc.FutureTimeoutError:
            return None
        except grpc.FutureCancelledError:
            return Failure(Cancelled("the call was cancelled before its answer"))
        except grpc.RpcError as error:
            return read_status(error.code(), error.details(), self._transport.address(self._attempts.server))
        except BaseException:  # Ctrl-C: nobody will read the answer
            self._future.cancel()
            raise
