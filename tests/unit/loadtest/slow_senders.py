"""Senders that make their worker process the limit of a run. In a module of their own, for workers import them by name."""

from __future__ import annotations

import asyncio
import time

from dragoman.loadtest.sender import Outcome, RequestSettings, Target

BLOCKING_S = 0.01
ANSWER_S = 1.0  # lateness is held against it: on a busy machine a few milliseconds must not matter
BURNT_S = 0.02


class BlockingSender:
    """Keeps its worker from everything else for a while, as Python's own work does; any processor will do for that."""

    async def send(self, text: str) -> Outcome:
        time.sleep(BLOCKING_S)
        await asyncio.sleep(ANSWER_S)
        return Outcome(time.monotonic(), text=text, target_tokens=1)

    async def close(self) -> None:
        """Nothing is open."""


class BurningSender:
    """Costs a known time of a processor a request."""

    async def send(self, text: str) -> Outcome:
        until_s = time.process_time() + BURNT_S
        while time.process_time() < until_s:
            pass
        await asyncio.sleep(0)
        return Outcome(time.monotonic(), text=text, target_tokens=1)

    async def close(self) -> None:
        """Nothing is open."""


async def open_blocking(target: Target, settings: RequestSettings) -> BlockingSender:
    return BlockingSender()


async def open_burning(target: Target, settings: RequestSettings) -> BurningSender:
    return BurningSender()
