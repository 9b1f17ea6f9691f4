"""Many texts for asyncio: the same window as windows.py, with a task for each request on its way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

from dragoman.client.results import Translation
from dragoman.client.windows import Batch, Window, batches, fill_blanks
from dragoman.errors import InvalidRequest

__all__ = ["batches_async", "in_order_async"]

Send = Callable[[list[str]], Coroutine[Any, Any, list[Translation]]]


async def batches_async(lines: Iterable[str] | AsyncIterable[str], size: int, first: int = 1) -> AsyncIterator[Batch]:
    """`lines`, of either kind, in batches of `size`; read only as far as asked for."""
    if not isinstance(lines, AsyncIterable):
        for batch in batches(lines, size, first):
            yield batch
        return
    taken: list[str] = []
    async for line in lines:
        taken.append(line)
        if len(taken) == size:
            yield Batch(first, tuple(taken))
            first, taken = first + size, []
    if taken:
        yield Batch(first, tuple(taken))


async def in_order_async(
    source: AsyncIterator[Batch], window: Window, send: Send, noun: str
) -> AsyncGenerator[Translation, None]:
    """Translate `source` with many requests in flight; closing the generator cancels them."""
    waiting: deque[tuple[Batch, asyncio.Task[list[Translation]]]] = deque()
    more = True
    try:
        while more or waiting:
            while more and _room(waiting, window):
                batch = await anext(source, None)
                if batch is None:
                    more = False
                else:
                    waiting.append((batch, asyncio.ensure_future(_answer(batch, send))))
            if waiting and not waiting[0][1].done():
                await asyncio.wait([task for _, task in waiting if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            elif waiting:
                batch, task = waiting.popleft()
                async for translation in _finish(batch, task, send, noun):
                    yield translation
    finally:
        tasks = [task for _, task in waiting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _room(waiting: deque[tuple[Batch, asyncio.Task[list[Translation]]]], window: Window) -> bool:
    unanswered = sum(not task.done() for _, task in waiting)
    return unanswered < window.in_flight and len(waiting) < window.in_flight + window.held


async def _answer(batch: Batch, send: Send) -> list[Translation]:
    return await send(batch.texts) if batch.texts else []


async def _finish(
    batch: Batch, task: Awaitable[list[Translation]], send: Send, noun: str
) -> AsyncGenerator[Translation, None]:
    """A refused batch is asked again text by text, so that its good texts are kept and the error names the bad one."""
    try:
        answers = await task
    except InvalidRequest as error:
        if len(batch.lines) == 1:
            raise InvalidRequest(f"{noun} {batch.first}: {error}") from None
        async for translation in _one_by_one(batch, send, noun):
            yield translation
        return
    for translation in fill_blanks(batch, answers):
        yield translation


async def _one_by_one(batch: Batch, send: Send, noun: str) -> AsyncGenerator[Translation, None]:
    number = batch.first
    try:
        for line in batch.lines:
            yield (await send([line]))[0] if line.strip() else Translation.of_nothing()
            number += 1
    except InvalidRequest as error:
        raise InvalidRequest(f"{noun} {number}: {error}") from None
