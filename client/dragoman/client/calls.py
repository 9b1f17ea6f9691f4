"""gRPC calls as the transport needs them. blocking.py and asynchronous.py make them; all rules live above them.

Everything above is written once, as coroutines: over AsyncCalls they suspend and an event loop resumes them, over
BlockingCalls they never do and `blocking.run` runs them to their end at once.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from dragoman.client.failures import Failure
from dragoman.client.messages import Message

__all__ = ["Calls", "PendingCall", "ResponseStream", "Task"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class PendingCall(Protocol):
    """A unary call on its way."""

    async def wait(self, timeout_s: float | None) -> Message | Failure | None:
        """What it ended with; None when it has not within `timeout_s`."""

    def cancel(self) -> None:
        """Cancel the call, also at the server. Nothing happens when the answer has arrived."""


class ResponseStream(Protocol):
    """A streaming call on its way."""

    async def next(self) -> Message | Failure | None:
        """The next response; None at the end."""

    def cancel(self) -> None:
        """Cancel the stream, also at the server."""


class Task(Protocol[T_co]):
    """A coroutine that runs beside its maker."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    async def result(self) -> T_co:
        """What it returned or raised; waits for it."""

    async def ended(self) -> None:
        """Return when it has ended, whatever it did."""

    def cancel(self) -> None:
        """End it, and the call it waits for."""


class Calls(Protocol):
    """Connections to the servers, by number, and what depends on how one waits."""

    async def unary(self, server: int, method: str, request: Message, timeout_s: float) -> Message | Failure:
        """One call of Triton's service."""

    def start(self, server: int, request: Message, timeout_s: float) -> PendingCall:
        """Send an inference and return at once."""

    def stream(self, server: int, request: Message, timeout_s: float) -> ResponseStream:
        """A streaming inference of one request."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def spawn(self, work: Coroutine[Any, Any, T]) -> Task[T]:
        """Run `work` beside the caller."""

    async def wait_any(self, tasks: Sequence[Task[Any]]) -> None:
        """Return when one of the tasks has ended."""

    async def close(self) -> None:
        """End every call in flight and all connections."""
