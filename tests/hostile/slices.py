"""How long one slice of a request's work takes the engine's thread, in processor time: a busy machine changes nothing of it.

A neighbour's next token waits for the slice that runs. Slices of the model itself are the runtime's, and measured by
`neighbours`; these are the texts', the options' and the answers'.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from tritonclient.grpc.service_pb2 import ModelInferRequest as Request

from dragoman.serving.engine import Event, SessionReply
from dragoman.serving.ipc.channel import Channel
from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.serving.metrics import Recorder
from dragoman.serving.process.answers import Replies
from dragoman.serving.process.job_queue import Job, JobQueue
from dragoman.serving.process.loaded_bundle import load_bundle
from dragoman.serving.process.loop import GarbageCollector
from dragoman.serving.process.request_handler import RequestHandler
from dragoman.serving.process.settings import EngineSettings, ProcessSettings
from hostile.expensive import ANSWERED_MS, Expensive, expensive
from served import Caller

Result = TypeVar("Result")
LONGEST_S = 60.0
_JOB_BUDGET_S = 0.002


@dataclass
class Slices:
    """The longest of each kind, in seconds."""

    longest_s: dict[str, float] = field(default_factory=dict)

    def timed(self, kind: str, work: Callable[[], Result]) -> Result:
        began_s = time.thread_time()
        try:
            return work()
        finally:
            self.longest_s[kind] = max(time.thread_time() - began_s, self.longest_s.get(kind, 0.0))


class _MeasuredJobs(JobQueue):
    def __init__(self) -> None:
        super().__init__()
        self.slices = Slices()

    def _step(self, job: Job, now_s: float) -> float:
        return self.slices.timed("job", lambda: super(_MeasuredJobs, self)._step(job, now_s))


class EngineThread:
    """What the engine process does between a request and its answer, without Triton and sockets."""

    def __init__(self, bundle: Path) -> None:
        loaded = load_bundle(ProcessSettings("en-de", bundle, EngineSettings(threads=1)))
        self._engine, self._jobs = loaded.engine, _MeasuredJobs()
        self._answers: list[Frame] = []
        self._handler = RequestHandler(loaded, Recorder(), Replies(lambda _, frame: self._answers.append(frame)), self._jobs)
        self._number = 0
        self._garbage = GarbageCollector()

    def longest(self, kind: Kind, parts: tuple[bytes, ...]) -> tuple[str, Slices]:
        """How a request ends, `ok` or an error's code, and its slices."""
        self._number += 1
        slices = self._jobs.slices = Slices()
        frame = Frame(kind, self._number, (struct.pack("<d", time.monotonic()), *parts))
        slices.timed("admission", lambda: self._handler.translate(cast(Channel, "backend"), frame))
        deadline_s = time.monotonic() + LONGEST_S
        while (self._handler.open_requests or self._engine.busy) and time.monotonic() < deadline_s:
            self._turn(slices)
        slices.timed("garbage", lambda: self._garbage.run(at_rest=True))
        (last,) = [frame for frame in self._answers if frame.kind is not Kind.CHUNK]
        self._answers.clear()
        return ("ok" if last.kind is Kind.ANSWER else last.parts[0].decode()), slices

    def _handle(self, events: list[Event]) -> None:
        """All that happened in a step: many texts may have come to their end in it."""
        for event in events:
            if not isinstance(event, SessionReply):
                self._handler.handle(event)

    def _turn(self, slices: Slices) -> None:
        self._jobs.run(_JOB_BUDGET_S)
        events = self._engine.step() if self._engine.busy else []
        slices.timed("answers", lambda: self._handle(events))
        slices.timed("parked", self._handler.resume_parked)


def longest_slices(bundle: Path, longest_ms: float) -> dict[str, tuple[str, dict[str, float]]]:
    """Of each expensive request of texts how it ends, and its slices; in a process of its own. Each takes `longest_ms`."""
    thread, found = EngineThread(bundle), {}
    for request in expensive():
        if (message := _message_of(request)) is not None:
            code, slices = thread.longest(*_frame_of(message, ANSWERED_MS if request.is_answered else longest_ms))
            found[request.name] = code, slices.longest_s
    return found


def _message_of(request: Expensive) -> Request | None:
    """What it sends, if that is one request for translations that the Triton backend would pass on."""
    recording = _Recording()
    with contextlib.suppress(TypeError, AttributeError):  # it has no answers, and nothing but a stub
        request.send(cast(Caller, recording))
    found = [message for message in recording.messages if message.model_name in ("translate", "translate_stream")]
    return found[0] if found else None


def _frame_of(message: Request, longest_ms: float) -> tuple[Kind, tuple[bytes, ...]]:
    """What the Triton backend makes of it."""
    tensors = {tensor.name: tuple(tensor.contents.bytes_contents) for tensor in message.inputs}
    kind = Kind.STREAM if message.model_name == "translate_stream" else Kind.SCORE if "TARGET" in tensors else Kind.TRANSLATE
    options = json.loads(tensors["OPTIONS"][0]) | {"timeout_ms": longest_ms}
    return kind, (json.dumps(options).encode(), *tensors["TEXT"], *tensors.get("TARGET", ()))


@dataclass
class _Recording:
    """In the place of a `Caller` and of its stub: keeps what is sent and answers nothing."""

    messages: list[Request] = field(default_factory=list)

    @property
    def stub(self) -> _Recording:
        return self

    def ModelInfer(self, message: Request, **_: object) -> None:  # noqa: N802 - gRPC's name
        self.messages.append(message)

    def ModelStreamInfer(self, messages: Iterator[Request], **_: object) -> Iterator[Any]:  # noqa: N802
        self.messages += messages
        return iter(())
