"""Many pairs of a source and a target, scored in requests of bounded size, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice

from dragoman.client.requests import check_texts
from dragoman.client.results import Score
from dragoman.errors import InvalidRequest, UsageError

__all__ = ["Pair", "is_blank", "pairs_of", "score_each"]

Pair = tuple[str, str]
"""A source and its target."""

Send = Callable[[Sequence[Pair]], Awaitable[list[Score]]]
"""Scores the pairs of one request."""

_AT_ONCE = 32
"""Pairs per request. The server reads one target after the other, so several requests in flight would gain nothing."""


def pairs_of(source: object, target: object) -> list[Pair]:
    """The pairs of a call with lists; TypeError for what is no text, UsageError for lists of different lengths."""
    sources, targets = check_texts(source, "score"), check_texts(target, "score")
    if len(sources) != len(targets):
        raise UsageError(f"score() got {len(sources)} sources and {len(targets)} targets; each source needs one target")
    return list(zip(sources, targets, strict=True))


def is_blank(pair: Pair) -> bool:
    """Whether neither side has anything to score, as where parallel texts have blank lines."""
    return not any(map(str.strip, pair))


async def score_each(pairs: Iterable[Pair], send: Send, noun: str) -> AsyncIterator[list[Score]]:
    """Scores of all pairs, read only as far as needed; an error names the pair: `noun` and its number, from 1.

    Blank pairs have scores without tokens, so that every pair has one.
    """
    number, iterator = 1, iter(pairs)
    while True:
        batch, broken = _taken(iterator)
        if batch:
            async for scores in _answers(batch, send, noun, number):
                yield scores
        number += len(batch)
        if broken is not None:
            raise broken
        if len(batch) < _AT_ONCE:
            return


async def _answers(batch: Sequence[Pair], send: Send, noun: str, first: int) -> AsyncIterator[list[Score]]:
    """A batch that is refused is sent again pair by pair, to find out which is the bad one."""
    try:
        scores = await _scored(batch, send)
    except InvalidRequest as error:
        if len(batch) == 1:
            raise InvalidRequest(f"{noun} {first}: {error}") from None
        for at, pair in enumerate(batch):
            async for one in _answers([pair], send, noun, first + at):
                yield one
        return
    yield scores


async def _scored(batch: Sequence[Pair], send: Send) -> list[Score]:
    """Only what is not blank is sent."""
    written = [pair for pair in batch if not is_blank(pair)]
    scores = iter(await send(written) if written else ())
    return [Score.of_nothing() if is_blank(pair) else next(scores) for pair in batch]


def _taken(iterator: Iterator[Pair]) -> tuple[list[Pair], Exception | None]:
    """The next pairs; with the error of one that can't be read, so that those before it are scored first."""
    batch: list[Pair] = []
    try:
        batch.extend(islice(iterator, _AT_ONCE))
    except Exception as error:
        return batch, error
    return batch, None
