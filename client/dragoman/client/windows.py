"""Many texts: cut into requests, several of them on their way at once, answers in the order of the texts."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Protocol

from dragoman.client.channels import SILENCE_S
from dragoman.client.results import Translation
from dragoman.errors import InvalidRequest, UsageError

__all__ = ["Batch", "Deferred", "Waiting", "Window", "batches", "fill_blanks", "in_order"]


@dataclass(frozen=True, slots=True)
class Window:
    """How a long list of texts is sent.

    At most `in_flight` requests of `batch_size` texts wait for an answer; those that were answered before their turn
    are held, but never more than `held` of them, so that memory stays flat however long the input is. The server needs
    more texts than it can decode at once, and few requests, for each costs both sides as much as a line.
    """

    batch_size: int = 32
    in_flight: int = 12
    held: int = 16

    def __post_init__(self) -> None:
        if min(self.batch_size, self.in_flight) < 1 or self.held < 0:
            raise UsageError(f"{self} is impossible: batch_size and in_flight must be at least 1, held at least 0")


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines side by side in the input; `first` is the number of the first, counted from 1."""

    first: int
    lines: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """The lines that need a model."""
        return [line for line in self.lines if line.strip()]


class Waiting(Protocol):
    """A request on its way; `result` waits for it."""

    def result(self) -> list[Translation]: ...
    def cancel(self) -> None: ...
    def answered(self) -> bool: ...
    def on_answer(self, notice: Callable[[], None]) -> None: ...
    def give_up_if_hung(self) -> None: ...


class Deferred:
    """Work that is not sent ahead but done when its turn comes."""

    def __init__(self, work: Callable[[], list[Translation]]) -> None:
        self.result = work

    def cancel(self) -> None:
        """Nothing was sent."""

    def answered(self) -> bool:
        return True

    def on_answer(self, notice: Callable[[], None]) -> None:
        notice()

    def give_up_if_hung(self) -> None:
        """There is nobody to be hung."""


def batches(lines: Iterable[str], size: int, first: int = 1) -> Iterator[Batch]:
    """`lines` in batches of `size`; read only as far as asked for."""
    iterator = iter(lines)
    for start in count(first, size):
        taken = tuple(islice(iterator, size))
        if not taken:
            return
        yield Batch(start, taken)


def fill_blanks(batch: Batch, answers: Iterable[Translation]) -> Iterator[Translation]:
    """A Translation for every line: blank lines are their own."""
    found = iter(answers)
    for line in batch.lines:
        yield next(found) if line.strip() else Translation.of_nothing()


class _Tally:
    """Requests that wait for an answer; the answers come in gRPC's own thread."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.unanswered = 0

    def sent(self, request: Waiting) -> None:
        self.unanswered += 1
        request.on_answer(lambda: self._news.put(None))

    def wait(self, timeout_s: float) -> bool:
        """Whether an answer came in time."""
        try:
            self._news.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self.unanswered -= 1
        return True

    def catch_up(self) -> None:
        """Count the answers that have come meanwhile."""
        while not self._news.empty():
            self.wait(0.0)


def in_order(
    source: Iterator[Batch],
    window: Window,
    send: Callable[[list[str]], Waiting],
    alone: Callable[[str], Translation],
    noun: str = "line",
) -> Iterator[Translation]:
    """Translate `source` with many requests in flight; closing the iterator cancels them.

    A refused batch is asked again text by text (`alone`): its good texts are kept, and the error names the bad one.
    """
    waiting: deque[tuple[Batch, Waiting | None]] = deque()  # None: only blank lines, nothing to wait for
    tally = _Tally()
    try:
        while True:
            tally.catch_up()
            while tally.unanswered < window.in_flight and len(waiting) < window.in_flight + window.held:
                batch = next(source, None)
                if batch is None:
                    break
                request = send(batch.texts) if batch.texts else None
                waiting.append((batch, request))
                if request is not None:
                    tally.sent(request)
            if not waiting:
                return
            head = waiting[0][1]
            if head is None or head.answered():
                yield from finish(*waiting.popleft(), alone, noun)
            elif not tally.wait(SILENCE_S):
                for _, request in waiting:
                    if request is not None:
                        request.give_up_if_hung()
    finally:
        for _, request in waiting:
            if request is not None:
                request.cancel()


def finish(batch: Batch, request: Waiting | None, alone: Callable[[str], Translation], noun: str) -> Iterator[Translation]:
    """The translations of a batch whose request is waited for."""
    if request is None:
        return fill_blanks(batch, ())
    try:
        answers = request.result()
    except InvalidRequest as error:
        if len(batch.lines) == 1:
            raise InvalidRequest(f"{noun} {batch.first}: {error}") from None
        return _one_by_one(batch, alone, noun)
    return fill_blanks(batch, answers)


def _one_by_one(batch: Batch, alone: Callable[[str], Translation], noun: str) -> Iterator[Translation]:
    """The lines of a refused batch until the one that was the reason, whose error names its line."""
    number = batch.first
    try:
        for line in batch.lines:
            yield alone(line) if line.strip() else Translation.of_nothing()
            number += 1
    except InvalidRequest as error:
        raise InvalidRequest(f"{noun} {number}: {error}") from None
