"""Where tokens stand in a text: half-open ranges of characters, one for each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Span", "joined_empty", "spans_by_decoding", "spans_of_bytes"]

Span = tuple[int, int]


_CONTEXT = 8
"""Tokens that are decoded again with the next; for each decoded anew, a shorter context would have to be decoded, too."""

_MOST_BEHIND = 64
"""Tokens that may wait for the rest of a character, or be blanks; what needs more is no text, and its spans a guess."""


def spans_by_decoding(decode: Callable[[list[int]], str], ids: list[int]) -> list[Span]:
    """The characters that each token adds to decode(ids), for decoders that do not report them.

    A token that is a part of a character adds it with the last one of its parts. Linear in the number of tokens: the text
    that a token adds depends only on the few tokens before it, so a short context is decoded instead of all tokens.
    """
    text, spans, end = decode(ids), list[Span](), 0
    context, clean, reached = 0, 0, 0  # ids[context:clean] end at text[reached], with a whole character
    before = ""  # their text
    for count in range(1, len(ids) + 1):
        begin, window = end, decode(ids[context:count])
        added = window[len(before) :] if window.startswith(before) else ""
        matching = reached + _common(added, text[reached : reached + len(added)])
        end = len(text) if count == len(ids) else max(end, matching)
        spans.append((begin, end))
        if (added and matching == reached + len(added)) or count - clean > _MOST_BEHIND:
            last = decode(ids[clean:count]) if count - context > _CONTEXT else ""
            if last.strip() or count - context > _MOST_BEHIND:  # a decoder may drop blanks at the beginning
                context, window = clean, last
            clean, reached, before = count, end, window
    return joined_empty(spans)


def _common(one: str, other: str) -> int:
    """The length of the common beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def spans_of_bytes(text: str) -> list[Span]:
    """For every byte of the text in UTF-8, the span of the character that it belongs to."""
    return [(at, at + 1) for at, character in enumerate(text) for _ in character.encode("utf-8", errors="surrogatepass")]


def joined_empty(spans: Sequence[Span]) -> list[Span]:
    """A token without characters of its own, before one that begins there, is a part of that one's first character."""
    joined = list(spans)
    for at in range(len(joined) - 2, -1, -1):
        if joined[at][0] == joined[at][1] == joined[at + 1][0]:
            joined[at] = joined[at + 1]
    return joined
