"""What a text has that is no words: links, addresses, variables, codes and quantities, which must come out as they went in.

Each is replaced by a *stand-in* before the text is translated, a number that the model's vocabulary has, which the search is
made to generate again; then it is put back. Nothing depends on whether the model knows the characters of a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from dragoman.bundle.tokenizer import Tokenizer

__all__ = ["StandIns", "placeholder_spans"]

_UNITS = (
    "km/h|kWh|kHz|MHz|GHz|min|Mbit|Gbit|kB|MB|GB|TB|km|cm|mm|nm|kg|mg|ml|cl|dl|kW|MW|mAh|ms|Hz|lb|oz|ft|°C|°F|°|µm|m²|m³"
    "|m|g|l|h|s|W|V|%|‰|€|\\$|£"
)
_WIDE = "，。、；：！？（）［］｛｝《》「」『』【】“”‘’…\u3000"
"""No link has them: in languages without spaces they stand directly behind it."""
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
            "(?:[\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff\U0001f1e6-\U0001f1ff][\ufe0f\u200d\U0001f3fb-\U0001f3ff]{0,3}){1,16}",
        )
    )
)

_BEGINS_ONE = re.compile("[`:@{%\\d\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001faff]|www")
"""Every placeholder has one of these. Most texts have none, and are not worth a closer look."""
_CHARACTERS_BETWEEN_PAUSES = 4096
_WANTED = 24
_NUMBERS = (*range(2013, 1989, -1), *range(1989, 1900, -1), *range(70, 10, -1), *range(1000, 10000, 1111))


def placeholder_spans(text: str) -> Iterator[tuple[int, int] | None]:
    """Where they are in `text`, from left to right; linear in its length. None is a pause."""
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


class StandIns:
    """Numbers that this tokenizer writes and reads with the fewest tokens; found when the first text needs one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _numbers(self) -> list[str]:
        rated = []
        for order, number in enumerate(map(str, _NUMBERS)):
            ids = self._tokenizer.encode_target(number)
            if self._tokenizer.decode(ids).strip() == number:
                rated.append((len(ids), order, number))
        return [number for _, _, number in sorted(rated)[:_WANTED]]

    def has(self, text: str) -> bool:
        """Whether `text` is one of them."""
        return text in self._numbers

    @cached_property
    def tokens(self) -> frozenset[tuple[int, ...]]:
        """Each as the model writes it."""
        return frozenset(tuple(self._tokenizer.encode_target(number)) for number in self._numbers)

    def for_text(self, text: str) -> Sequence[str]:
        """Those that `text` does not have itself."""
        return [number for number in self._numbers if number not in text]
