"""Runs a client-driven decoding over a transport: a session lives in one server, so all its calls go there.

When a call fails and may be retried, the whole decoding starts again: it has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.client.client_decoding import Call, ClientDecode, ClientDecoding
from dragoman.client.failures import Failure
from dragoman.client.messages import Message, Reply, infer_request
from dragoman.client.options import CheckedOptions
from dragoman.client.results import Translation
from dragoman.client.retry import Attempts
from dragoman.client.transport import Transport

__all__ = ["decode"]

_CLOSE_TIMEOUT_S = 2.0


async def decode(
    transport: Transport, texts: Sequence[bytes], options: CheckedOptions, plan: ClientDecoding
) -> list[Translation]:
    """The translations of `texts`, searched here."""
    attempts = transport.attempts(options.timeout_s)
    while True:
        outcome = await _decode_once(transport, ClientDecode(texts, options, plan), attempts)
        if not isinstance(outcome, Failure):
            attempts.answered()
            return outcome
        await transport.calls.sleep(attempts.failed(outcome))


async def _decode_once(transport: Transport, decoding: ClientDecode, attempts: Attempts) -> list[Translation] | Failure:
    steps = decoding.steps()
    try:
        calls = next(steps)
        while True:
            requests = [_request(call) for call in calls]
            outcomes = await transport.infer_together(requests, attempts.server, attempts.remaining_s)
            replies = [Reply(outcome) for outcome in outcomes if not isinstance(outcome, Failure)]
            decoding.note_sessions(replies)
            for outcome in outcomes:
                if isinstance(outcome, Failure):
                    return outcome
            try:
                calls = steps.send(replies)
            except StopIteration as end:  # must not leave a coroutine
                translations: list[Translation] = end.value
                return translations
    finally:
        closing = [_request(call) for call in decoding.closing()]
        # If it fails the server frees the sessions itself, after its idle timeout.
        await transport.infer_together(closing, attempts.server, _CLOSE_TIMEOUT_S)


def _request(call: Call) -> Message:
    return infer_request(call.model, call.inputs)
