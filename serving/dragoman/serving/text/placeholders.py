"""Placeholders: links, addresses, variables, codes and quantities, which must appear in the translation unchanged.

Each is replaced by a *stand-in* before the text is translated, a word that the model copies (`stand_ins`) and that the
search is constrained to generate; afterwards it is put back (`placeholder_slots`). So the model need not know the characters
of a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

__all__ = ["is_aside", "may_have_placeholders", "placeholder_spans"]

_UNITS = (
    "km/h|kWh|kHz|MHz|GHz|min|Mbit|Gbit|kB|MB|GB|TB|[kcm]?m[²³]|km|cm|mm|nm|kg|mg|ml|cl|dl|kW|MW|mAh|ms|Hz|lb|oz|ft"
    "|°C|°F|℃|℉|°|µm|m|g|l|h|s|W|V|%|‰|€|\\$|£"
)
_WIDE = "，。、；：！？（）［］｛｝《》「」『』【】“”‘’…\u3000"
"""No link has them: in languages without spaces they stand directly behind it."""
_EMOJI = re.compile(
    "(?:[\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff\U0001f1e6-\U0001f1ff][\ufe0f\u200d\U0001f3fb-\U0001f3ff]{0,3}){1,16}"
)
_ALONE = re.compile(rf"{_EMOJI.pattern}|{{\\")
"""What letters beside it are no part of: emoji, and codes of subtitles such as {\\an8}."""
_ASIDE = re.compile(rf"(?:{_EMOJI.pattern}|{{\\[^{{}}\n]{{1,99}}}})+")
_PLACEHOLDER = re.compile(
    "|".join(
        (
            r"`[^`\n]{1,200}`",  # code
            rf"(?:https?|ftp)://[^\s<>\"'{_WIDE}]{{1,2000}}[^\s<>\"'{_WIDE}.,;:!?)\]}}]",
            rf"\bwww\.[^\s<>\"'{_WIDE}]{{1,500}}[^\s<>\"'{_WIDE}.,;:!?)\]}}]",
            r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}\b",
            r"\{\{[^{}\n]{1,100}\}\}",
            r"\$?\{[^{}\n]{1,100}\}",
            r"%\([^()\n%]{1,60}\)[-+ #0]{0,3}\d{0,3}(?:\.\d{1,3})?[a-zA-Z]",
            r"(?<![\d\w])%(?:\d\$)?[-+#0]{0,3}\d{0,3}(?:\.\d{1,3})?l{0,2}[sdifgxXeucq@]\b",
            rf"(?<![\w.,])\d{{1,15}}(?:[.,]\d{{1,15}}){{0,5}}[ \u00a0\u202f]?(?:{_UNITS})(?!\w)",
            r"[$€£¥₹₽₩][ \u00a0\u202f]?\d{1,15}(?:[.,]\d{1,15}){0,5}(?!\w)",
            _EMOJI.pattern,
        )
    )
)

_BEGINS_ONE = re.compile("[`:@{%\\d\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff]|www")
"""Every placeholder has one of these. Most texts have none, and need no search."""
_CHARACTERS_BETWEEN_PAUSES = 2048
_MOST_GLUED = 40
_SPACED_LETTERS = re.compile(r"[0-9A-Za-z\u00c0-\u024f\u0370-\u058f]{0,40}")


def may_have_placeholders(text: str) -> bool:
    """A quick check; False only if the text certainly has none."""
    return _BEGINS_ONE.search(text) is not None


def is_aside(placeholder: str) -> bool:
    """Whether it is no word, but beside those of its sentence."""
    return _ASIDE.fullmatch(placeholder) is not None


def placeholder_spans(text: str, tags: Set[int] = frozenset()) -> Iterator[tuple[int, int] | None]:
    """The placeholders in `text`, from left to right, in linear time. None is a pause.

    Adjacent letters belong to a placeholder ({size}px), and so does an adjacent placeholder (%s%s): a stand-in is a separate
    word. No placeholder crosses the positions `tags`, at which the source has something else.
    """
    begin = end = 0  # of the one that may go on
    for span in _found(text):
        if span is None:
            yield None
            continue
        if not tags.isdisjoint(range(span[0] + 1, span[1])):
            continue
        first, last = span if _ALONE.match(text, span[0]) else _with_letters(text, *span, end, tags)
        if first <= end and end > begin and end not in tags:
            end = max(end, last)
            continue
        if end > begin:
            yield begin, end
        begin, end = first, last
    if end > begin:
        yield begin, end


def _with_letters(text: str, start: int, end: int, least: int, tags: Set[int]) -> tuple[int, int]:
    behind = _SPACED_LETTERS.match(text, end)
    before = _SPACED_LETTERS.match(text[max(least, start - _MOST_GLUED) : start][::-1])
    first, last = start - (before.end() if before else 0), behind.end() if behind else end
    if tags:
        first = next((at for at in range(start, first, -1) if at in tags), first)
        last = next((at for at in range(end, last) if at in tags), last)
    return first, last


def _found(text: str) -> Iterator[tuple[int, int] | None]:
    start = 0
    while start < len(text):
        end = start + _CHARACTERS_BETWEEN_PAUSES
        if end < len(text):  # placeholders do not go on in the next line, and seldom after a space
            end = max(text.rfind("\n", start, end), text.rfind(" ", start, end)) + 1 or end
        if _BEGINS_ONE.search(text, start, end) is not None:
            for match in _PLACEHOLDER.finditer(text, start, end):
                yield match.span()
        if end < len(text):
            yield None
        start = end
