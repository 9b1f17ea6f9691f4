"""Runs a client-driven decoding over a transport: a session lives in one server, so all its calls go there.

When a call fails in a way that another try may cure, the whole decoding starts again: it has changed nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from dragoman.client.async_transport import AsyncTransport
from dragoman.client.client_decoding import Call, ClientDecode, ClientDecoding
from dragoman.client.failures import Failure
from dragoman.client.messages import Reply, infer_request
from dragoman.client.options import Asked
from dragoman.client.results import Translation
from dragoman.client.retry import Attempts
from dragoman.client.transport import Transport

__all__ = ["decode", "decode_async"]

_CLOSE_TIMEOUT_S = 2.0


def decode(transport: Transport, texts: Sequence[bytes], asked: Asked, plan: ClientDecoding) -> list[Translation]:
    """The translations of `texts`, searched here."""
    attempts = transport.attempts(asked.timeout_s)
    while True:
        outcome = _decode_once(transport, ClientDecode(texts, asked, plan), attempts)
        if not isinstance(outcome, Failure):
            attempts.answered()
            return outcome
        time.sleep(attempts.failed(outcome))


def _decode_once(transport: Transport, decoding: ClientDecode, attempts: Attempts) -> list[Translation] | Failure:
    steps = decoding.steps()
    try:
        calls = next(steps)
        while True:
            replies = transport.infer_together([_request(call) for call in calls], attempts.server, attempts.remaining_s)
            if isinstance(replies, Failure):
                return replies
            calls = steps.send([Reply(reply) for reply in replies])
    except StopIteration as end:
        translations: list[Translation] = end.value
        return translations
    finally:
        closing = [_request(call) for call in decoding.closing()]
        transport.infer_together(closing, attempts.server, _CLOSE_TIMEOUT_S)  # if it fails the server frees them itself


async def decode_async(
    transport: AsyncTransport, texts: Sequence[bytes], asked: Asked, plan: ClientDecoding
) -> list[Translation]:
    """The same for asyncio."""
    attempts = transport.attempts(asked.timeout_s)
    while True:
        outcome = await _decode_once_async(transport, ClientDecode(texts, asked, plan), attempts)
        if not isinstance(outcome, Failure):
            attempts.answered()
            return outcome
        await asyncio.sleep(attempts.failed(outcome))


async def _decode_once_async(
    transport: AsyncTransport, decoding: ClientDecode, attempts: Attempts
) -> list[Translation] | Failure:
    steps = decoding.steps()
    try:
        calls = next(steps)
        while True:
            requests = [_request(call) for call in calls]
            replies = await transport.infer_together(requests, attempts.server, attempts.remaining_s)
            if isinstance(replies, Failure):
                return replies
            try:
                calls = steps.send([Reply(reply) for reply in replies])
            except StopIteration as end:  # must not leave a coroutine
                translations: list[Translation] = end.value
                return translations
    finally:
        closing = [_request(call) for call in decoding.closing()]
        await transport.infer_together(closing, attempts.server, _CLOSE_TIMEOUT_S)


def _request(call: Call) -> object:
    return infer_request(call.model, call.inputs)
