"""AsyncTranslator against a scripted server."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fake_triton import (
    INVALID,
    RESTARTING,
    Outputs,
    Received,
    ScriptedTriton,
    translated,
    until_cancelled,
)

from dragoman.client import AsyncTranslator, RetryPolicy
from dragoman.errors import (
    Cancelled,
    InvalidRequest,
    UsageError,
)


def test_the_async_translator_answers_many_calls_at_once(triton: ScriptedTriton) -> None:
    barrier = threading.Barrier(8)  # opens only when eight calls are inside the server together

    def meet(request: Received, context: object) -> Outputs:
        barrier.wait(120)
        return translated(request.texts)

    triton.answers.extend([meet] * 8)

    async def main() -> list[str]:
        async with AsyncTranslator(triton.url) as translator:
            return [one.text for one in await asyncio.gather(*(translator.translate(f"t{n}") for n in range(8)))]

    assert asyncio.run(main()) == [f"T{number}" for number in range(8)]


def test_the_async_translator_retries_and_raises_like_the_other(triton: ScriptedTriton, eager: RetryPolicy) -> None:
    triton.answers.extend([RESTARTING, INVALID])

    async def main() -> None:
        async with AsyncTranslator(triton.url, retry=eager) as translator:
            await translator.translate("hi")

    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(main())
    assert caught.value.__cause__ is None
    assert len(triton.received) == 2


def test_a_cancelled_task_cancels_the_work_in_the_server(triton: ScriptedTriton) -> None:
    triton.answers.append(until_cancelled)

    async def main() -> None:
        async with AsyncTranslator(triton.url) as translator:
            task = asyncio.ensure_future(translator.translate("hi"))
            while not triton.received:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(triton.received[0].cancelled.wait, 5)

    asyncio.run(main())


def test_the_async_list_keeps_its_order(triton: ScriptedTriton) -> None:
    texts = [f"text {number}" for number in range(100)]

    async def main() -> list[str]:
        async with AsyncTranslator(triton.url) as translator:
            return [one.text for one in await translator.translate(texts)]

    assert asyncio.run(main()) == [text.upper() for text in texts]


def test_closing_an_async_translator_ends_its_calls_with_an_error_of_the_tree(triton: ScriptedTriton) -> None:
    triton.answers.append(until_cancelled)

    async def main() -> None:
        translator = AsyncTranslator(triton.url)
        task = asyncio.ensure_future(translator.translate("hi"))
        while not triton.received:
            await asyncio.sleep(0.01)
        await translator.aclose()
        with pytest.raises(Cancelled):
            await task
        with pytest.raises(UsageError, match="closed"):
            await translator.translate("hi")

    asyncio.run(main())
