"""gRPC calls for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from dragoman.client.calls import Task
from dragoman.client.channels import Channel, Connection, Stub, open_channels, stub_of
from dragoman.client.failures import Failure, read_status
from dragoman.client.messages import Message
from dragoman.errors import Cancelled, UsageError

__all__ = ["AsyncCalls"]

T = TypeVar("T")

AioCall = Any
"""A call of grpc.aio; it has no types."""


class AsyncCalls:
    """One channel per server, made in the loop of the first call and bound to it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channels: list[Channel] = []
        self._stubs: list[Stub] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def unary(self, server: int, method: str, request: Message, timeout_s: float) -> Message | Failure:
        return await self.outcome(getattr(self._stub(server), method)(request, timeout=timeout_s), server)

    def start(self, server: int, request: Message, timeout_s: float) -> _PendingCall:
        call = self._stub(server).ModelInfer(request, timeout=timeout_s)
        return _PendingCall(call, asyncio.ensure_future(self.outcome(call, server)))

    def stream(self, server: int, request: Message, timeout_s: float) -> _ResponseStream:
        return _ResponseStream(self, self._stub(server).ModelStreamInfer(iter([request]), timeout=timeout_s), server)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, work: Coroutine[Any, Any, T]) -> _LoopTask[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # the loop itself holds tasks only weakly
        task.add_done_callback(self._tasks.discard)
        return _LoopTask(task)

    async def wait_any(self, tasks: Sequence[Task[Any]]) -> None:
        inner = [task.inner for task in tasks if isinstance(task, _LoopTask)]
        await asyncio.wait(inner, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        self._closed = True
        for channel in self._channels:
            await channel.close()

    async def outcome(self, call: Awaitable[Message], server: int) -> Message | Failure:
        """What `call` gives, or the Failure it ended with."""
        failure = Failure(Cancelled("the translator was closed during the call"))
        try:
            return await call
        except grpc.RpcError as error:
            if not self._closed:
                failure = read_status(error.code(), error.details(), self._connection.addresses.targets[server])
        except asyncio.CancelledError:
            if not self._closed or _is_cancelled():
                raise
        except grpc.aio.UsageError:  # gRPC's error for a channel that was closed
            if not self._closed:
                raise
        return failure

    def _stub(self, server: int) -> Stub:
        if self._closed:
            raise UsageError("this translator is closed; make a new one")
        if not self._stubs:
            self._channels = open_channels(self._connection, grpc.aio)
            self._stubs = [stub_of(channel) for channel in self._channels]
        return self._stubs[server]


class _PendingCall:
    def __init__(self, call: AioCall, ending: asyncio.Future[Message | Failure]) -> None:
        self._call, self._ending = call, ending

    async def wait(self, timeout_s: float | None) -> Message | Failure | None:
        ended, _ = await asyncio.wait({self._ending}, timeout=timeout_s)
        return self._ending.result() if ended else None

    def cancel(self) -> None:
        if not self._ending.done():
            self._ending.cancel()
            self._call.cancel()


class _ResponseStream:
    def __init__(self, calls: AsyncCalls, call: AioCall, server: int) -> None:
        self._calls, self._call, self._server = calls, call, server

    async def next(self) -> Message | Failure | None:
        response = await self._calls.outcome(self._call.read(), self._server)
        return None if response is grpc.aio.EOF else response

    def cancel(self) -> None:
        self._call.cancel()


class _LoopTask(Generic[T]):
    def __init__(self, inner: asyncio.Task[T]) -> None:
        self.inner = inner

    @property
    def done(self) -> bool:
        return self.inner.done()

    async def result(self) -> T:
        return await self.inner

    async def ended(self) -> None:
        await asyncio.gather(self.inner, return_exceptions=True)

    def cancel(self) -> None:
        self.inner.cancel()


def _is_cancelled() -> bool:
    """Whether the task itself was cancelled, not only the call that it waits for; Python 3.10 can't tell."""
    task = asyncio.current_task()
    return task is not None and bool(getattr(task, "cancelling", lambda: 0)())
