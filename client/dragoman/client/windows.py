"""Many texts: cut into requests, several of them on their way at once, answers in the order of the texts."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from dragoman.client.calls import Calls, Task
from dragoman.client.results import Translation
from dragoman.errors import InvalidRequest, UsageError

__all__ = ["Batch", "Send", "Window", "batches", "each", "in_order", "one_after_another"]

T = TypeVar("T")

Send = Callable[[list[str]], Coroutine[Any, Any, list[Translation]]]
"""Translates the texts of one request."""


@dataclass(frozen=True, slots=True)
class Window:
    """How a long list of texts is sent.

    At most `in_flight` requests of `batch_size` texts wait for an answer; those that were answered before their turn
    are held, but never more than `held` of them, so that memory stays flat however long the input is. The server needs
    more texts than it can decode at once, in few requests: each request costs both sides as much as one more text.
    """

    batch_size: int = 32
    in_flight: int = 12
    held: int = 16

    def __post_init__(self) -> None:
        if min(self.batch_size, self.in_flight) < 1 or self.held < 0:
            raise UsageError(f"{self} is impossible: batch_size and in_flight must be at least 1, held at least 0")


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines side by side in the input; `first` is the number of the first, counted from 1."""

    first: int
    lines: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """The lines that need a model."""
        return [line for line in self.lines if line.strip()]


async def batches(lines: Iterable[str] | AsyncIterable[str], size: int, first: int = 1) -> AsyncIterator[Batch]:
    """`lines` in batches of `size`; read only as far as needed."""
    if isinstance(lines, AsyncIterable):
        taken: list[str] = []
        async for line in lines:
            taken.append(line)
            if len(taken) == size:
                yield Batch(first, tuple(taken))
                first, taken = first + size, []
        if taken:
            yield Batch(first, tuple(taken))
        return
    iterator = iter(lines)
    while batch := tuple(islice(iterator, size)):
        yield Batch(first, batch)
        first += size


async def one_after_another(source: AsyncIterator[Batch], send: Send, noun: str) -> AsyncGenerator[list[Translation], None]:
    """Translate `source` with one request at a time; a list for each."""
    async for batch in source:
        async for translations in _finish(batch, send(batch.texts) if batch.texts else None, send, noun):
            yield translations


async def in_order(
    source: AsyncIterator[Batch], window: Window, send: Send, noun: str, calls: Calls
) -> AsyncGenerator[list[Translation], None]:
    """Translate `source` with many requests in flight; closing the generator cancels them."""
    waiting: deque[tuple[Batch, Task[list[Translation]] | None]] = deque()  # None: only blank lines
    broken: Exception | None = None
    more = True
    try:
        while more or waiting:
            while more and _has_room(waiting, window):
                batch = await _next(source)
                if isinstance(batch, Batch):
                    waiting.append((batch, calls.spawn(send(batch.texts)) if batch.texts else None))
                else:
                    broken, more = batch, False
            unanswered = [task for _, task in waiting if task is not None and not task.done]
            if unanswered and unanswered[0] is waiting[0][1]:
                await calls.wait_any(unanswered)
            elif waiting:
                head, task = waiting.popleft()
                async for translations in _finish(head, None if task is None else task.result(), send, noun):
                    yield translations
        if broken is not None:
            raise broken
    finally:
        left = [task for _, task in waiting if task is not None]
        for task in left:
            task.cancel()
        for task in left:
            await task.ended()


async def each(lists: AsyncGenerator[list[T], None]) -> AsyncGenerator[T, None]:
    """The elements of these lists, one by one."""
    try:
        async for some in lists:
            for one in some:
                yield one
    finally:
        await lists.aclose()


async def _next(source: AsyncIterator[Batch]) -> Batch | Exception | None:
    """None at the end; the error of a line that can't be read, so that the lines before it are finished first."""
    try:
        return await anext(source, None)
    except Exception as error:
        return error


def _has_room(waiting: deque[tuple[Batch, Task[list[Translation]] | None]], window: Window) -> bool:
    unanswered = sum(task is not None and not task.done for _, task in waiting)
    return unanswered < window.in_flight and len(waiting) < window.in_flight + window.held


async def _finish(
    batch: Batch, answers: Coroutine[Any, Any, list[Translation]] | None, send: Send, noun: str
) -> AsyncGenerator[list[Translation], None]:
    """A Translation for every line. A refused batch is sent again text by text, so that the error names the bad one."""
    try:
        translated = iter([] if answers is None else await answers)
    except InvalidRequest as error:
        if len(batch.lines) == 1:
            raise InvalidRequest(f"{noun} {batch.first}: {error}") from None
        async for translations in _one_by_one(batch, send, noun):
            yield translations
        return
    yield [next(translated) if line.strip() else Translation.of_nothing() for line in batch.lines]


async def _one_by_one(batch: Batch, send: Send, noun: str) -> AsyncGenerator[list[Translation], None]:
    number = batch.first
    try:
        for line in batch.lines:
            yield await send([line]) if line.strip() else [Translation.of_nothing()]
            number += 1
    except InvalidRequest as error:
        raise InvalidRequest(f"{noun} {number}: {error}") from None
