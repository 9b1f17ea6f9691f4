"""What the load test sends requests with: one request out, one outcome with its times back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from dragoman.client.addresses import TLS, Addresses
from dragoman.client.options import CheckedOptions, RequestOptions, check_options

__all__ = ["OpenSender", "Outcome", "RequestSettings", "Sender", "Target", "Unread"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the load goes; several servers share it in turn."""

    addresses: Addresses
    tls: TLS | None = None

    def __str__(self) -> str:
        return str(self.addresses)


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The options of every request; None leaves it to the model."""

    model: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    task: str | None = None
    task_prefix: str | None = None
    beam_size: int | None = None
    stream: bool = False
    use_cache: bool = False  # a repeated sentence must be work for the engine, not a look-up
    timeout_s: float = 30.0

    def checked(self) -> CheckedOptions:
        """The options of each request."""
        options: RequestOptions = {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "task": self.task,
            "task_prefix": self.task_prefix,
            "beam_size": self.beam_size,
            "cache": None if self.use_cache else False,
        }
        return check_options(options, self.model, self.timeout_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Times are of `time.monotonic`, which all processes of a machine share."""

    finished_at: float
    error: str | None = None
    message: str = ""
    text: str = ""
    source_tokens: int = 0
    target_tokens: int = 0
    first_token_at: float | None = None
    queue_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """An answer that has come; `read` gives its outcome.

    Reading many in a row costs a fraction of reading each as it comes, when a busy server has just had the caches.
    """

    read: Callable[[], Outcome]


class Sender(Protocol):
    """Sends requests over connections it owns. A request that fails is an outcome, not an exception."""

    async def send(self, text: str) -> Outcome | Unread: ...

    async def close(self) -> None: ...


OpenSender = Callable[[Target, RequestSettings], Awaitable[Sender]]
