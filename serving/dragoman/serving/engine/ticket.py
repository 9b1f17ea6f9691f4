"""A request on its way through the engine."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions
from dragoman.serving.engine.request import Request, Timings

if TYPE_CHECKING:
    from dragoman.serving.engine.running import RunningLane

__all__ = ["Ticket"]


class Ticket:
    """What the engine remembers of a request until its final answer.

    `source_tokens`; `prompt_tokens`: start token and forced prefix; `longest`: the most tokens that a row will ever hold
    (the last one is never fed); `expected`: those it will probably hold, as translations are seldom much longer than
    their sources. They are looked at in every step for every request, so they are plain attributes.
    """

    __slots__ = (
        "admitted_s",
        "expected",
        "first_token_s",
        "lane",
        "longest",
        "options",
        "order",
        "prompt_tokens",
        "request",
        "sent",
        "since_s",
        "source_tokens",
        "steps",
        "width",
    )

    def __init__(self, request: Request, submitted_s: float) -> None:
        self.request = request
        self.options = request.options
        self.width = request.options.beam_size
        self.since_s = submitted_s if request.arrived_s is None else request.arrived_s
        self.admitted_s: float | None = None
        self.first_token_s: float | None = None
        self.lane: RunningLane | None = None  # that decodes it
        self.order = 0  # of admission: the latest is the first to give way
        self.steps = 0  # right when it is in no lane
        self.sent = 0  # tokens of Progress events
        self.source_tokens = len(request.source)
        self.prompt_tokens = 1 + len(request.options.prefix)
        self._foresee()

    def bound(self, target_tokens: int) -> None:
        """The model's limit is a limit beside `max_length`: the lower one holds."""
        room = target_tokens - len(self.options.prefix)
        if room < max(self.options.min_length, 1):
            raise InvalidRequest(
                f"a prefix of {len(self.options.prefix)} tokens and min_length={self.options.min_length} are more than the "
                f"model's {target_tokens} target tokens"
            )
        if self.options.max_length > room:
            self.options = _shortened(self.options, room)
            self._foresee()

    def timings(self, now: float) -> Timings:
        admitted = now if self.admitted_s is None else self.admitted_s
        first = None if self.first_token_s is None else self.first_token_s - self.since_s
        return Timings(admitted - self.since_s, first, now - self.since_s, self.steps)

    def _foresee(self) -> None:
        self.longest = self.prompt_tokens + self.options.max_length - 1
        self.expected = min(self.longest, self.prompt_tokens + self.source_tokens * 5 // 4 + 4)


@functools.lru_cache(maxsize=256)
def _shortened(options: DecodingOptions, max_length: int) -> DecodingOptions:
    """Checked anew, which takes as long as two steps of a small model; most requests ask for the same."""
    return dataclasses.replace(options, max_length=max_length)
