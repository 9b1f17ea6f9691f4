"""Emphasis of Markdown: which marks open and close it, by the rules of CommonMark and of its strikethrough extension.

The algorithm is CommonMark's: marks are matched from left to right, and nothing is searched twice.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

__all__ = ["Signs", "match_signs", "signs_at"]

_STEPS_BETWEEN_PAUSES = 100


@dataclass(slots=True)
class Signs:
    """A run of one mark. `closed` and `opened`: what was matched, as numbers of marks and names of pairs, in order."""

    sign: str
    length: int
    can_open: bool
    can_close: bool
    count: int = 0  # of those that are not matched
    closed: list[tuple[int, str]] = field(default_factory=list)
    opened: list[tuple[int, str]] = field(default_factory=list)


def signs_at(text: str, start: int, end: int) -> Signs:
    """The run text[start:end]: what it may do depends on what stands beside it."""
    before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
    is_left = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
    is_right = not before.isspace() and (not _is_punctuation(before) or after.isspace() or _is_punctuation(after))
    sign, length = text[start], end - start
    if sign == "_":
        can_open = is_left and (not is_right or _is_punctuation(before))
        can_close = is_right and (not is_left or _is_punctuation(after))
    else:
        can_open, can_close = is_left, is_right
    if sign == "~" and length > 2:
        can_open = can_close = False
    return Signs(sign, length, can_open, can_close, length)


def match_signs(runs: Sequence[Signs], first_name: int) -> Generator[None, None, int]:
    """Match the marks of `runs` with each other; returns the number after the last pair's name."""
    name = first_name
    before = list(range(-1, len(runs) - 1))  # what is still to be matched, as a list with two ends
    after = list(range(1, len(runs) + 1))

    def remove(number: int) -> None:
        if before[number] >= 0:
            after[before[number]] = after[number]
        if after[number] < len(runs):
            before[after[number]] = before[number]

    bottoms: dict[tuple[str, bool, int], int] = {}
    closer = steps = 0
    while closer < len(runs):
        if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
            yield
        run = runs[closer]
        if not run.can_close:
            closer = after[closer]
            continue
        kind = run.sign, run.can_open, run.length % 3
        opener, bottom = before[closer], bottoms.get(kind, -1)
        while opener > bottom and not _match(runs[opener], run):
            opener = before[opener]
            if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
                yield
        if opener <= bottom:
            bottoms[kind] = before[closer]
            following = after[closer]
            if not run.can_open:
                remove(closer)
            closer = following
            continue
        opening = runs[opener]
        used = run.count if run.sign == "~" else 2 if min(run.count, opening.count) >= 2 else 1
        opening.opened.append((used, f"{run.sign}{name}"))
        run.closed.append((used, f"{run.sign}{name}"))
        name += 1
        opening.count -= used
        run.count -= used
        after[opener], before[closer] = closer, opener  # what stood between can't be matched any more
        if not opening.count:
            remove(opener)
        if not run.count:
            following = after[closer]
            remove(closer)
            closer = following
    return name


def _match(opener: Signs, closer: Signs) -> bool:
    if opener.sign != closer.sign or not opener.can_open or not opener.count:
        return False
    if closer.sign == "~":
        return opener.count == closer.count
    both = opener.can_close or closer.can_open
    return not (both and (opener.length + closer.length) % 3 == 0 and (opener.length % 3 or closer.length % 3))


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
