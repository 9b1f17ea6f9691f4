"""The request handler on an engine with a fake model, as tests of requests ask it."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
from typing import Any, cast

from fake_bundle import MANIFEST, VOCABULARY, Letters, fake_bundle

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.bundle.words import VocabularyWords
from dragoman.errors import Overloaded
from dragoman.serving.engine import Engine, EngineLimits, SessionReply
from dragoman.serving.in_process import model_facts
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.metrics import Recorder
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.job_queue import JobQueue
from dragoman.serving.process.request_handler import RequestHandler
from dragoman.serving.process.requests import PartOwner
from dragoman.wire import Limits
from fake_runtime import FakeRuntime
from stepped_engine import check_invariants


class Server:
    """A request handler, its engine, and everything it has sent."""

    def __init__(
        self,
        limits: EngineLimits | None = None,
        cache_bytes: int = 1 << 20,
        *,
        tokenizer: Letters | None = None,
        engine: Engine | None = None,
        languages: LanguageResolver | None = None,
        wire_limits: Limits | None = None,
    ) -> None:
        facts = dataclasses.replace(model_facts(MANIFEST), words=VocabularyWords(cast("Tokenizer", Letters())))
        self.engine = engine or Engine(FakeRuntime(VOCABULARY), facts, limits)
        self.recorder = Recorder()
        bundle = fake_bundle(
            self.engine, cache_bytes=cache_bytes, tokenizer=tokenizer, languages=languages, limits=wire_limits
        )
        self.sent: list[tuple[str, Frame]] = []
        self.jobs = JobQueue(clock=lambda: 0.0)  # whose turn it is does not depend on how fast the machine is
        self.handler = RequestHandler(bundle, self.recorder, Replies(self.send), self.jobs)

    def send(self, channel: Channel, frame: Frame) -> None:
        self.sent.append((str(channel), frame))

    def ask(
        self,
        number: int,
        *texts: str,
        kind: Kind = Kind.TRANSLATE,
        backend: str = "backend",
        ago_s: float = 0.0,
        **options: object,
    ) -> None:
        arrived = struct.pack("<d", time.monotonic() - ago_s)
        parts = (arrived, json.dumps(options).encode(), *(text.encode() for text in texts))
        self.handler.translate(cast(Channel, backend), Frame(kind, number, parts))

    def turn(self) -> None:
        self.jobs.run(1.0)
        if self.engine.busy:
            for event in self.engine.step():
                if not isinstance(event, SessionReply):
                    self.handler.handle(event)
        self.handler.resume_parked()

    def finish(self) -> Server:
        while len(self.jobs) or self.engine.busy:
            self.turn()
        check_invariants(self.engine)
        return self

    def last_answers(self, number: int) -> list[Frame]:
        return [frame for _, frame in self.sent if frame.request == number and frame.kind in (Kind.ANSWER, Kind.ERROR)]

    def texts(self, number: int) -> list[str]:
        (answer,) = self.last_answers(number)
        assert answer.kind is Kind.ANSWER, answer
        return [part.decode() for part in answer.parts[4:]]

    def details(self, number: int, kind: Kind = Kind.TRANSLATE) -> dict[str, Any]:
        (answer,) = self.last_answers(number)
        return cast("dict[str, Any]", json.loads(answer.parts[1 if kind is Kind.STREAM else 0]))

    def error(self, number: int) -> str:
        (answer,) = self.last_answers(number)
        assert answer.kind is Kind.ERROR
        return answer.parts[1].decode()


def alone(text: str, **options: object) -> str:
    server = Server()
    server.ask(1, text, **options)
    return server.finish().texts(1)[0]


class Full(Overloaded):
    def __init__(self) -> None:
        super().__init__("the queue is full")


def owners(engine: Engine) -> list[PartOwner]:
    return [sequence.owner for sequence in engine._active if isinstance(sequence.owner, PartOwner)]
