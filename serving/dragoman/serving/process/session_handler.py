"""Client-driven decoding on the wire: open a session, step it, turn its tokens into text, close it."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dragoman.errors import InvalidRequest, Overloaded, ServeError, ServerError
from dragoman.search import DecodingOptions
from dragoman.search.option_types import Integer, TokenLists, shown
from dragoman.serving.engine import OpenSession, SessionCall, SessionReply, StepSession
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import MAX_FRAME_BYTES, Frame, read_arrival
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.job_queue import Job, JobQueue, Yield
from dragoman.serving.process.loaded_bundle import LoadedBundle
from dragoman.serving.process.options import RequestOptions, parse_object
from dragoman.serving.process.request_admission import check_sizes, read_text
from dragoman.serving.text.document import Document
from dragoman.wire import WIRE_VERSION

__all__ = ["SessionHandler"]

_PAUSE_S = 2.0  # longer than any caller needs between two steps
_NOTHING = (struct.pack("<II", 0, 0), b"", b"", b"")
_DECODE_PARTS = 4
_MAX_NAME_BYTES = 256
_BYTES_PER_ROW = 12
_SHORT_COMMAND_BYTES = 4096
_TOKENS_PER_STEP = 2048
"""Tokens that are detokenised between two pauses."""

_CALLS_PER_SESSION = 2
"""That may be in preparation at a time, if there were as many sessions as there may be: a command of 256 kB takes megabytes
while its tokens are made texts."""
_MOST_UNREAD_BYTES = MAX_FRAME_BYTES // 2
"""The limit of answers that a Triton backend has not read yet: with more the connection breaks, for all its callers."""
_JSON = json.JSONEncoder(ensure_ascii=False)

_Work = Generator[Yield, None, tuple[bytes, ...] | None]
"""Yields pauses; returns the answer, or None when the engine's reply will bring it."""


class _Owner(NamedTuple):
    """Of a call of the engine: whom its reply is for."""

    channel: Channel
    number: int
    answer: Callable[[SessionCall], tuple[bytes, ...]]


class SessionHandler:
    """Answers ENCODE and DECODE frames. Texts and tokens are processed in slices; the engine makes the model calls.

    A session's name on the wire begins with this process's `key`, by which backends find the process.
    """

    def __init__(self, bundle: LoadedBundle, key: str, replies: Replies, jobs: JobQueue) -> None:
        self._bundle, self._prefix, self._replies, self._jobs = bundle, f"{key}.", replies, jobs
        self._sessions = bundle.engine.sessions
        rows, longest = bundle.engine.limits.max_session_rows, bundle.manifest.dimensions.max_target_tokens
        self._token_lists = TokenLists(most=4 * rows, most_each=2 * longest, may_be_empty=True)
        self._candidates = Integer(1, bundle.manifest.dimensions.choices)
        self._most_calls = _CALLS_PER_SESSION * bundle.engine.limits.max_sessions
        self._calls = 0  # in preparation
        self._used_at_s = 0.0

    @property
    def in_use(self) -> bool:
        """Whether a client is in the middle of a decoding. A drain does not wait for a session that is not stepped."""
        return len(self._sessions) > 0 and time.monotonic() - self._used_at_s < _PAUSE_S

    def encode(self, channel: Channel, frame: Frame) -> None:
        """ENCODE: [arrival, options, text, …]."""
        read_arrival(frame)
        self._begin(channel, frame, self._encode(channel, frame))

    def decode(self, channel: Channel, frame: Frame) -> None:
        """DECODE: [arrival, session, command, step]."""
        read_arrival(frame)
        if len(frame.parts) != _DECODE_PARTS:
            raise ServeError(f"a DECODE frame of {len(frame.parts)} parts is malformed")
        self._begin(channel, frame, self._decode(channel, frame))

    def handle(self, reply: SessionReply) -> None:
        """The engine has finished a call."""
        owner = reply.call.owner
        if not isinstance(owner, _Owner):
            return  # not ours
        try:
            if reply.call.error is not None:
                raise reply.call.error
            self._replies.answer(owner.channel, owner.number, owner.answer(reply.call))
        except Exception as error:
            self._replies.failure(owner.channel, owner.number, error)

    def _begin(self, channel: Channel, frame: Frame, work: _Work) -> None:
        self._used_at_s = time.monotonic()
        if self._calls >= self._most_calls:
            busy = Overloaded(f"{self._calls} calls of client-driven sessions are being read", 0.1)
            self._replies.failure(channel, frame.request, busy)
            return
        self._calls += 1
        steps = self._steps(channel, frame.request, work)
        self._jobs.add(Job(steps, lambda error: self._replies.failure(channel, frame.request, error)))

    def _steps(self, channel: Channel, number: int, work: _Work) -> Iterator[Yield]:
        try:
            answer = yield from work
        finally:
            self._calls -= 1
        if answer is not None:
            self._replies.answer(channel, number, answer)

    def _encode(self, channel: Channel, frame: Frame) -> _Work:
        bundle, raw = self._bundle, frame.parts[2:]
        options = bundle.options.read(frame.parts[1])
        check_sizes(raw, bundle.settings.limits)
        _check_server_options(options)
        options = dataclasses.replace(options, placeholders=False, capitals=False)  # the caller restores nothing
        prefix = [
            *options.decoding.prefix,
            *(bundle.tokenizer.encode_target(options.prefix_text) if options.prefix_text else ()),
        ]
        sources, shortlists = list[tuple[int, ...]](), list[int]()
        gaps, prefixes = list[str](), list[list[int]]()  # the gaps of each text as JSON: those of all together take long
        most = bundle.engine.limits.max_session_rows
        for number, each in enumerate(raw):
            document = yield from _paused(bundle.plan(read_text(each, number, len(raw)), options, most))
            gaps.append(_JSON.encode(document.gaps))
            prefixes += [[] if position else prefix for position in range(len(document.parts))]
            if len(sources) + len(document.parts) > most:
                raise InvalidRequest(
                    f"the texts have more than {most} sentences, which client-driven decoding takes together; send them in "
                    "several requests, or decode in the server"
                )
            for part in document.parts:
                sources.append(bundle.source(document, part, options))
                shortlists.append(bundle.shortlist(document, options))
                yield Yield.PAUSE
        if not sources:
            raise InvalidRequest("there is nothing to decode: the text has no letters, and so stays as it is")
        choices = max(map(bundle.choices, shortlists), default=bundle.manifest.dimensions.choices)
        info = self._model_info([len(source) for source in sources], gaps, prefixes, options, choices)

        def answer(call: SessionCall) -> tuple[bytes, ...]:
            if not isinstance(call, OpenSession):
                raise ServerError("the engine has answered another call")
            return (self._prefix + call.name).encode(), info

        self._sessions.submit(OpenSession(sources, _Owner(channel, frame.request, answer), shortlists))
        return None

    def _model_info(
        self,
        source_tokens: list[int],
        gaps: list[str],
        prefixes: list[list[int]],
        options: RequestOptions,
        choices: int,
    ) -> bytes:
        bundle, manifest = self._bundle, self._bundle.manifest
        about = _JSON.encode(
            {
                "wire_version": WIRE_VERSION,
                "model": bundle.settings.name,
                "version": bundle.version,
                "tokens": dataclasses.asdict(manifest.tokens),
                "generation": _told(options.usual or manifest.generation),
                "source_tokens": source_tokens,
                "prefix": prefixes,
                "target_vocabulary": manifest.dimensions.target_vocabulary,
                "choices": choices,
                "max_target_tokens": manifest.dimensions.max_target_tokens,
                "idle_timeout_s": bundle.engine.limits.session_idle_timeout_s,
            }
        )
        return f'{about[:-1]}, "gaps": [{", ".join(gaps)}]}}'.encode()

    def _decode(self, channel: Channel, frame: Frame) -> _Work:
        if len(frame.parts[2]) > _SHORT_COMMAND_BYTES:
            yield Yield.PAUSE  # short ones go first
        session = frame.parts[1][:_MAX_NAME_BYTES].decode(errors="replace").removeprefix(self._prefix)
        command = parse_object(frame.parts[2], "COMMAND", self._bundle.settings.limits.max_command_bytes)
        match command.get("do"):
            case "step":
                self._submit_step(_Owner(channel, frame.request, _step_answer), session, frame.parts[3], command)
                return None
            case "text":
                texts = yield from self._texts(command.get("tokens"))
                return (*_NOTHING, *texts)
            case "close":
                self._sessions.close(session)
                return _NOTHING
            case other:
                raise InvalidRequest(f"COMMAND does {shown(other)}; it must do one of step, text, close")

    def _submit_step(self, owner: _Owner, session: str, raw: bytes, command: Mapping[str, object]) -> None:
        candidates = self._candidates.read("candidates", command.get("candidates"))
        longest = _BYTES_PER_ROW * self._bundle.engine.limits.max_session_rows
        if not raw or len(raw) % _BYTES_PER_ROW or len(raw) > longest:
            raise InvalidRequest(
                f"STEP has {len(raw)} bytes; it must hold int32 triples (source, parent, token), at most {longest} bytes"
            )
        if owner.channel.backlog_bytes > _MOST_UNREAD_BYTES:
            raise Overloaded("the answers to other steps are not read yet", 0.1)
        rows = np.frombuffer(raw, "<i4").reshape(-1, 3)
        self._sessions.submit(StepSession(session, rows, candidates or 1, owner))

    def _texts(self, tokens: object) -> Generator[Yield, None, list[bytes]]:
        texts, since_pause = [], 0
        vocabulary = self._bundle.manifest.dimensions.target_vocabulary
        for each in self._token_lists.read_each("tokens", tokens):
            if max(each, default=0) >= vocabulary:
                raise InvalidRequest(f"token id {max(each)} is outside the model's vocabulary of {vocabulary}")
            texts.append(self._bundle.tokenizer.decode(each).encode())
            if (since_pause := since_pause + len(each)) > _TOKENS_PER_STEP:
                since_pause = 0
                yield Yield.PAUSE
        return texts


def _paused(plan: Generator[None, None, Document]) -> Generator[Yield, None, Document]:
    """A plan whose pauses are the job's."""
    while True:
        try:
            next(plan)
        except StopIteration as end:
            document: Document = end.value
            return document
        yield Yield.PAUSE


def _check_server_options(options: RequestOptions) -> None:
    """InvalidRequest for options that need the search to run in the server."""
    if options.alignment:
        raise InvalidRequest("alignment=true needs the search of the server; leave it out, or decode there")
    if options.alternatives_at:
        raise InvalidRequest("alternatives_at needs the search of the server; leave it out, or decode there")
    if options.on_suspicion != "ignore":
        raise InvalidRequest(
            f"on_suspicion={shown(options.on_suspicion)} needs the search of the server; leave it out, or decode there"
        )
    if options.format != "text" or options.glossary is not None:
        raise InvalidRequest("format and glossary need the search of the server; leave them out, or decode there")


def _step_answer(call: SessionCall) -> tuple[bytes, ...]:
    if not isinstance(call, StepSession) or call.top is None:
        raise ServerError("the engine has answered another call")
    top = call.top
    return (
        struct.pack("<II", *top.tokens.shape),  # (rows, candidates)
        top.tokens.astype("<i4").tobytes(),
        top.log_probs.astype("<f4", copy=False).tobytes(),
        top.logits.astype("<f4", copy=False).tobytes(),
    )


def _told(generation: DecodingOptions) -> dict[str, Any]:
    """A client decodes without the phrases of a glossary, and need not know of them."""
    return {name: value for name, value in dataclasses.asdict(generation).items() if name not in {"phrases", "terms"}}
