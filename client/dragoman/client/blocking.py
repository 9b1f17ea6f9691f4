"""gRPC calls that block their thread, and how coroutines over them are run without an event loop."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

import grpc

from dragoman.client.calls import Task
from dragoman.client.channels import Connection, Stub, open_channels, stub_of
from dragoman.client.failures import Failure, read_status
from dragoman.client.messages import Message
from dragoman.errors import Cancelled, UsageError

__all__ = ["BlockingCalls", "iterate", "iterate_each", "run"]

T = TypeVar("T")

_LOOK_S = 0.1

Future = Any
"""A gRPC call that is also a future, or an iterator of responses; it has no types."""


def run(awaitable: Awaitable[T]) -> T:
    """The result of a coroutine that waits only for BlockingCalls, and therefore never suspends."""
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a coroutine over BlockingCalls was suspended: it awaited something else")


def iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The same for an async generator; closing the iterator closes it."""
    try:
        while True:
            try:
                item = run(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def iterate_each(lists: AsyncGenerator[list[T], None]) -> Generator[T, None, None]:
    """The elements of the lists that an async generator yields."""
    iterator = iterate(lists)
    try:
        for items in iterator:
            yield from items
    finally:
        iterator.close()


class BlockingCalls:
    """One channel per server, shared by all calls and threads."""

    def __init__(self, connection: Connection) -> None:
        self._targets = connection.addresses.targets
        self._channels = open_channels(connection)
        self._stubs = [stub_of(channel) for channel in self._channels]
        self._closed = False
        self._this_thread = threading.local()  # its `task`, in a thread of `spawn`
        self._task_ended = threading.Condition()

    async def unary(self, server: int, method: str, request: Message, timeout_s: float) -> Message | Failure:
        call = getattr(self._stub(server), method)
        if self._task is None:  # no other thread is needed: a third cheaper than a future, but it can't be cancelled
            return self.outcome(lambda: call(request, timeout=timeout_s), server)
        pending = self._pending(call.future(request, timeout=timeout_s), server)
        return self.outcome(pending.future.result, server)

    def start(self, server: int, request: Message, timeout_s: float) -> _PendingCall:
        return self._pending(self._stub(server).ModelInfer.future(request, timeout=timeout_s), server)

    def stream(self, server: int, request: Message, timeout_s: float) -> _ResponseStream:
        call = self._stub(server).ModelStreamInfer(iter([request]), timeout=timeout_s)
        return _ResponseStream(self, call, server)

    async def sleep(self, seconds: float) -> None:
        if self._task is None:
            time.sleep(seconds)
        elif self._task.cancelled.wait(seconds):
            raise Cancelled("the call was cancelled before its answer")

    def spawn(self, work: Coroutine[Any, Any, T]) -> _ThreadTask[T]:
        task = _ThreadTask(work, self._task_ended)
        threading.Thread(target=task.run, args=(self._this_thread,), name="dragoman-call", daemon=True).start()
        return task

    async def wait_any(self, tasks: Sequence[Task[Any]]) -> None:
        with self._task_ended:
            self._task_ended.wait_for(lambda: any(task.done for task in tasks))

    async def close(self) -> None:
        self._closed = True
        for channel in self._channels:
            channel.close()

    def outcome(self, call: Callable[[], Message], server: int) -> Message | Failure:
        """What `call` returns, or the Failure it ended with."""
        try:
            return call()
        except grpc.FutureCancelledError:
            failure = Failure(Cancelled("the call was cancelled before its answer"))
        except grpc.RpcError as error:
            failure = read_status(error.code(), error.details(), self._targets[server])
        except ValueError:  # gRPC's error for a channel that was closed
            if not self._closed:
                raise
            failure = Failure(Cancelled(""))
        return Failure(Cancelled("the translator was closed during the call")) if self._closed else failure

    @property
    def _task(self) -> _ThreadTask[Any] | None:
        return getattr(self._this_thread, "task", None)

    def _stub(self, server: int) -> Stub:
        if self._closed:
            raise UsageError("this translator is closed; make a new one")
        return self._stubs[server]

    def _pending(self, future: Future, server: int) -> _PendingCall:
        if self._task is not None:
            self._task.watch(future)
        return _PendingCall(self, future, server)


class _PendingCall:
    def __init__(self, calls: BlockingCalls, future: Future, server: int) -> None:
        self._calls, self._server = calls, server
        self.future = future

    async def wait(self, timeout_s: float | None) -> Message | Failure | None:
        try:
            return self._calls.outcome(lambda: self.future.result(timeout=timeout_s), self._server)
        except grpc.FutureTimeoutError:
            return None

    def cancel(self) -> None:
        self.future.cancel()


class _ResponseStream:
    def __init__(self, calls: BlockingCalls, call: Future, server: int) -> None:
        self._calls, self._call, self._server = calls, call, server

    async def next(self) -> Message | Failure | None:
        return self._calls.outcome(lambda: next(self._call, None), self._server)

    def cancel(self) -> None:
        self._call.cancel()


class _ThreadTask(Generic[T]):
    """A coroutine in a thread of its own; it can be cancelled while it waits for a call or sleeps."""

    def __init__(self, work: Coroutine[Any, Any, T], ended: threading.Condition) -> None:
        self._work, self._ended = work, ended
        self._calls: set[Future] = set()
        self._outcome: Callable[[], T]
        self.cancelled = threading.Event()
        self.done = False

    def run(self, this_thread: threading.local) -> None:
        """The thread's main function."""
        this_thread.task = self
        try:
            result = run(self._work)
            self._outcome = lambda: result
        except BaseException as error:  # whatever it is, it is raised where the result is wanted
            self._outcome = _raising(error)
        with self._ended:
            self.done = True
            self._ended.notify_all()

    def watch(self, call: Future) -> None:
        """`call` is in flight, and ends with the task."""
        self._calls = {call, *(other for other in self._calls if not other.done())}
        if self.cancelled.is_set():
            call.cancel()

    async def result(self) -> T:
        await self.ended()
        return self._outcome()

    async def ended(self) -> None:
        with self._ended:
            # While the interpreter ends, its daemon threads stand still: an iterator that is closed then must not wait.
            while not self.done and not sys.is_finalizing():
                self._ended.wait(_LOOK_S)

    def cancel(self) -> None:
        self.cancelled.set()
        for call in self._calls:
            call.cancel()


def _raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> None:
        raise error

    return fail
