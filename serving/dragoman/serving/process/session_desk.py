"""Client-driven decoding as the wire has it: open a session, step it, turn its tokens into text, close it."""

from __future__ import annotations

import dataclasses
import json
import logging
import struct
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dragoman.errors import InvalidRequest, RequestError
from dragoman.serving.engine import OpenSession, SessionCall, StepSession
from dragoman.serving.engine.runtime import TopTokens
from dragoman.serving.failures import Failure
from dragoman.serving.link.channel import Channel
from dragoman.serving.link.frames import Frame, Kind
from dragoman.serving.logs import event as log_event
from dragoman.serving.process.admission import read_texts
from dragoman.serving.process.opening import OpenBundle
from dragoman.wire import WIRE_VERSION, ErrorCode

__all__ = ["SessionDesk"]

_log = logging.getLogger(__name__)
_PAUSE_S = 2.0  # longer than any caller thinks between two steps
_NOTHING = (struct.pack("<II", 0, 0), b"", b"", b"")


class SessionDesk:
    """Answers ENCODE and DECODE: what needs the model is the engine's work, between the steps of its batches.

    A session's name on the wire starts with this process's `key`, by which stubs find the way back to it.
    """

    def __init__(self, bundle: OpenBundle, key: str, send: Callable[[Channel, Frame], None]) -> None:
        self._bundle, self._prefix, self._send = bundle, f"{key}.", send
        self._sessions = bundle.engine.sessions
        self._used_at_s = 0.0

    @property
    def in_use(self) -> bool:
        """Is somebody in the middle of a decoding? A session that nobody steps is not worth waiting for."""
        return len(self._sessions) > 0 and time.monotonic() - self._used_at_s < _PAUSE_S

    def open(self, channel: Channel, frame: Frame) -> None:
        """ENCODE: [arrival, options, text, …]."""
        self._answer(channel, frame, self._open)

    def decode(self, channel: Channel, frame: Frame) -> None:
        """DECODE: [arrival, session, command, step]."""
        self._answer(channel, frame, self._decode)

    def _answer(self, channel: Channel, frame: Frame, work: Callable[[Channel, Frame], tuple[bytes, ...] | None]) -> None:
        """Do the work; what it returns is the answer, unless the engine has to say it later."""
        self._used_at_s = time.monotonic()
        try:
            parts = work(channel, frame)
        except RequestError as error:
            self._fail(channel, frame.request, error)
            return
        if parts is not None:
            self._send(channel, Frame(Kind.ANSWER, frame.request, parts))

    def _fail(self, channel: Channel, number: int, error: RequestError) -> None:
        failure = Failure.of(error)
        if failure.code is ErrorCode.INTERNAL:
            log_event(_log, logging.ERROR, "session failed", {"reason": str(error)})
        self._send(channel, Frame(Kind.ERROR, number, (failure.code.value.encode(), failure.text.encode())))

    def reply(self, call: SessionCall) -> None:
        """A call has ended in the engine."""
        channel, number, prefix = cast(tuple[Channel, int, tuple[int, ...]], call.owner)
        self._used_at_s = time.monotonic()
        if call.error is not None:
            self._fail(channel, number, call.error)
        elif isinstance(call, OpenSession):
            self._send(channel, Frame(Kind.ANSWER, number, self._opened(call, prefix)))
        elif isinstance(call, StepSession) and call.top is not None:
            self._send(channel, Frame(Kind.ANSWER, number, _stepped(call.top)))

    def _open(self, channel: Channel, frame: Frame) -> None:
        bundle = self._bundle
        terms = bundle.admission.read_options(frame.parts[1])
        texts = read_texts(frame.parts[2:], bundle.settings.limits)
        sources = [bundle.tokenizer.encode(text) for text in texts]
        prefix = bundle.options_for(terms, is_first=True).prefix
        self._sessions.submit(OpenSession(sources, (channel, frame.request, prefix)))

    def _opened(self, call: OpenSession, prefix: tuple[int, ...]) -> tuple[bytes, ...]:
        bundle = self._bundle
        manifest = bundle.manifest
        info = {
            "wire_version": WIRE_VERSION,
            "model": bundle.settings.name,
            "version": bundle.version,
            "tokens": dataclasses.asdict(manifest.tokens),
            "generation": dataclasses.asdict(manifest.generation),
            "source_tokens": [len(source) for source in call.sources],
            "prefix": [list(prefix) for _ in call.sources],
            "target_vocabulary": manifest.dimensions.target_vocabulary,
            "choices": manifest.dimensions.choices,
            "max_target_tokens": manifest.dimensions.max_target_tokens,
            "idle_timeout_s": bundle.engine.limits.session_idle_timeout_s,
        }
        return (self._prefix + call.name).encode(), json.dumps(info).encode()

    def _decode(self, channel: Channel, frame: Frame) -> tuple[bytes, ...] | None:
        session = frame.parts[1].decode(errors="replace").removeprefix(self._prefix)
        command = _command(frame.parts[2])
        match command.get("do"):
            case "step":
                rows, candidates = _rows(frame.parts[3]), _candidates(command.get("candidates"))
                self._sessions.submit(StepSession(session, rows, candidates, (channel, frame.request, ())))
                return None
            case "text":
                return (*_NOTHING, *self._texts(command.get("tokens")))
            case "close":
                self._sessions.close(session)
                return _NOTHING
            case other:
                raise InvalidRequest(f"COMMAND does {str(other)[:40]!r}; it must do one of step, text, close")

    def _texts(self, tokens: object) -> tuple[bytes, ...]:
        if not isinstance(tokens, list) or not all(isinstance(each, list) and all(map(_is_id, each)) for each in tokens):
            raise InvalidRequest('a text command must hold lists of token ids: {"do": "text", "tokens": [[3, 4], [5]]}')
        return tuple(self._bundle.tokenizer.decode(each).encode() for each in tokens)


def _rows(raw: bytes) -> npt.NDArray[np.int32]:
    if not raw or len(raw) % 12:
        raise InvalidRequest(f"STEP has {len(raw)} bytes; it must hold int32 triples (source, parent, token)")
    return np.frombuffer(raw, "<i4").reshape(-1, 3)


def _candidates(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest('a step must say how many candidates it wants: {"do": "step", "candidates": 4}')
    return value


def _stepped(top: TopTokens) -> tuple[bytes, ...]:
    return (
        struct.pack("<II", *top.tokens.shape),  # (rows, candidates)
        top.tokens.astype("<i4").tobytes(),
        top.log_probs.astype("<f4", copy=False).tobytes(),
        top.logits.astype("<f4", copy=False).tobytes(),
    )


def _command(raw: bytes) -> dict[str, Any]:
    try:
        command = json.loads(raw)
    except (ValueError, RecursionError):
        raise InvalidRequest("COMMAND is not JSON") from None
    if not isinstance(command, dict):
        raise InvalidRequest("COMMAND must be a JSON object")
    return command


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
