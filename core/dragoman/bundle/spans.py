"""Where tokens stand in a text: half-open ranges of characters, one for each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Span", "joined_empty", "spans_by_decoding", "spans_of_bytes"]

Span = tuple[int, int]


def spans_by_decoding(decode: Callable[[list[int]], str], ids: list[int]) -> list[Span]:
    """What each token adds to decode(ids), for a decoder that can't tell.

    A token that is a part of a character adds it with the last one of its parts.
    """
    text, spans, end = decode(ids), list[Span](), 0
    for count in range(1, len(ids) + 1):
        begin, beginning = end, text if count == len(ids) else decode(ids[:count])
        while end < min(len(text), len(beginning)) and beginning[end] == text[end]:
            end += 1
        spans.append((begin, end))
    return joined_empty(spans)


def spans_of_bytes(text: str) -> list[Span]:
    """Of every byte of the text in UTF-8: the character that it belongs to."""
    return [(at, at + 1) for at, character in enumerate(text) for _ in character.encode("utf-8", errors="surrogatepass")]


def joined_empty(spans: Sequence[Span]) -> list[Span]:
    """A token without characters of its own, before one that begins there, is a part of that one's first character."""
    joined = list(spans)
    for at in range(len(joined) - 2, -1, -1):
        if joined[at][0] == joined[at][1] == joined[at + 1][0]:
            joined[at] = joined[at + 1]
    return joined
