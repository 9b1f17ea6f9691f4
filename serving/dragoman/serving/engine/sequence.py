"""A sequence: one source on its way through the engine, with its request, its state and its result."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal, NamedTuple

from dragoman.errors import InvalidRequest, RequestError
from dragoman.search import DecodingOptions, Hypothesis

if TYPE_CHECKING:
    from dragoman.serving.engine.batch import DecodingBatch
    from dragoman.serving.engine.forced_decoding import ForcedTarget, Forcing

__all__ = ["Priority", "Sequence", "Timings"]

Priority = Literal["interactive", "batch"]


class Timings(NamedTuple):
    """How long a sequence took since its arrival, which is the time of `submit` unless its owner sets another."""

    queue_s: float
    first_token_s: float | None
    total_s: float
    steps: int


class Sequence:
    """One source to translate, from `Engine.submit` to its final hypotheses. `owner` is the caller's, `request` what it
    belongs to: requests take turns where sequences are worked on one by one.

    `deadline_s` and `arrived_s` are on the engine's clock. `prompt_tokens`: start token and forced prefix; `longest`: the
    most tokens that a row will ever hold (the last one is never fed); `reserved`: those it has KV slots for, at first what
    it will probably need, as translations are seldom much longer than their sources. All of it is looked at in every step,
    so these are plain attributes.
    """

    __slots__ = (
        "admitted_s",
        "arrived_s",
        "batch",
        "candidates",
        "deadline_s",
        "ended_s",
        "error",
        "first_token_s",
        "forced",
        "forcing",
        "full_at",
        "hypotheses",
        "is_large",
        "longest",
        "options",
        "order",
        "owner",
        "priority",
        "prompt_tokens",
        "request",
        "reserved",
        "shortlist",
        "source",
        "source_tokens",
        "steps",
        "stream",
        "streamed",
        "takes_turns",
        "width",
    )

    def __init__(
        self,
        source: tuple[int, ...],
        options: DecodingOptions | None = None,
        *,
        priority: Priority = "interactive",
        deadline_s: float | None = None,
        stream: bool = False,
        arrived_s: float | None = None,
        owner: object = None,
        request: object = None,
        forcing: Forcing | None = None,
        shortlist: int = 0,
    ) -> None:
        self.forcing = forcing  # forced decoding of its hypotheses, or of given targets instead of a search
        self.source, self.options = source, options or _DEFAULT
        self.priority, self.deadline_s, self.stream, self.owner = priority, deadline_s, stream, owner
        self.shortlist = shortlist  # the number of the list that its tokens are chosen from; 0: all tokens
        self.request = request
        self.width = self.options.beam_size  # rows
        self.source_tokens, self.prompt_tokens = len(source), 1 + len(self.options.prefix)
        # Where it stands.
        self.arrived_s = arrived_s
        self.admitted_s: float | None = None
        self.first_token_s: float | None = None
        self.batch: DecodingBatch | None = None  # that decodes it
        self.is_large = False  # whether it is so large that others must not wait for it
        self.candidates = 0  # candidates that a step considers, of all its rows
        self.takes_turns = False  # whether these are so many that not all such sequences may step together
        self.order = 0  # order of admission: the latest is preempted first
        self.steps = 0  # decoder steps; right when it is in no batch
        self.full_at = 0  # the batch's step at which its reserved slots are full
        # What it has produced.
        self.streamed = 0  # tokens of Progress events
        self.hypotheses: tuple[Hypothesis, ...] = ()
        self.forced: tuple[ForcedTarget, ...] = ()
        self.error: RequestError | None = None
        self.ended_s: float | None = None
        self._estimate_length()

    def limit_target(self, target_tokens: int) -> None:
        """The model's limit applies beside `max_length`: the lower one."""
        room = target_tokens - len(self.options.prefix)
        if room < max(self.options.min_length, 1):
            raise InvalidRequest(
                f"a prefix of {len(self.options.prefix)} tokens and min_length={self.options.min_length} are more than the "
                f"model's {target_tokens} target tokens"
            )
        if self.options.max_length > room:
            self.options = _shortened(self.options, room)
            self._estimate_length()

    @property
    def is_search(self) -> bool:
        """Whether there is a search to run; otherwise the targets are given."""
        return self.forcing is None or self.forcing.targets is None

    @property
    def timings(self) -> Timings:
        """Of a sequence that has ended."""
        since, now = self.arrived_s or 0.0, self.ended_s or 0.0
        queued = (now if self.admitted_s is None else self.admitted_s) - since
        first = None if self.first_token_s is None else self.first_token_s - since
        return Timings(queued, first, now - since, self.steps)

    def _estimate_length(self) -> None:
        options = self.options
        self.longest = self.prompt_tokens + options.max_length - 1
        probable = max(self.source_tokens * 5 // 4 + 4, options.min_length + 1)
        self.reserved = min(self.longest, self.prompt_tokens + probable)


_DEFAULT = DecodingOptions()


@functools.lru_cache(maxsize=256)
def _shortened(options: DecodingOptions, max_length: int) -> DecodingOptions:
    """The options with a lower `max_length`. Cached: validating options takes as long as two steps of a small model."""
    return dataclasses.replace(options, max_length=max_length)
