"""The attributes of a tag, in HTML and XML: where they end, which ones are texts, and which ones have a meaning here.

Read as the HTML standard's tokenizer reads them: anything is accepted, in one pass.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from dragoman.serving.text.markup_tokens import HTML_ATTRIBUTE, AttributeText, Style

__all__ = ["STEPS_BETWEEN_PAUSES", "Attributes", "is_attribute_text", "read_attributes"]

STEPS_BETWEEN_PAUSES = 150

_TEXTS = frozenset({"alt", "title", "placeholder", "label", "aria-label", "aria-description", "aria-placeholder"})
_ASKING = frozenset({"translate", "its:translate", "translatable", "class", "xml:space", "id", "rid"})
_NAME = re.compile(r"[^\s/>]+")
_BETWEEN = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"=?[^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
_MOST_CHARACTERS = 5000
_WORD = re.compile(r"[^\W\d_]")


@dataclass(slots=True)
class Attributes:
    """The attributes of one tag: its name, its end (after the >; -1 if nothing ends it), and the relevant values."""

    name: str
    end: int = -1
    asked: dict[str, str] = field(default_factory=dict)
    """Attributes with a meaning here; of several with one name the first counts."""
    texts: tuple[AttributeText, ...] = ()
    """Places are those of the tag, which begins with its <."""

    @property
    def asks_to_be_kept(self) -> bool:
        """Whether it has translate="no", or the class that translation services recognise."""
        return (
            self.asked.get("translate", self.asked.get("its:translate", "")).strip().lower() == "no"
            or self.asked.get("translatable", "").strip().lower() == "false"
            or "notranslate" in self.asked.get("class", "").lower().split()
        )


def read_attributes(
    source: str, tag: int, start: int, style: Style = HTML_ATTRIBUTE, unescape: Callable[[str], str] = html.unescape
) -> Generator[None, None, Attributes]:
    """The attributes of the tag whose < is at `tag` and whose name begins at `start`."""
    name = _NAME.match(source, start)
    found = Attributes("" if name is None else name.group())
    at = start if name is None else name.end()
    texts: dict[str, AttributeText] = {}
    count = 0
    while True:
        at = _matched(_BETWEEN, source, at)
        if at >= len(source):
            return found
        if source[at] == ">":
            found.end, found.texts = at + 1, tuple(texts.values())
            return found
        end = max(_matched(_ATTRIBUTE, source, at), at + 1)
        attribute, at = source[at:end].lower(), end
        if (equals := _EQUALS.match(source, at)) is not None:
            at = equals.end()
            is_quoted = source[at : at + 1] in {'"', "'"}
            end = source.find(source[at], at + 1) if is_quoted else _matched(_UNQUOTED, source, at)
            if end < 0:
                return found
            begin = at + is_quoted
            if attribute in _ASKING:
                found.asked.setdefault(attribute, source[begin:end])
            elif attribute in _TEXTS and attribute not in texts and is_attribute_text(source, begin, end):
                text = unescape(source[begin:end])
                texts[attribute] = AttributeText(begin - tag, end - tag, text, style, is_quoted)
            at = end + is_quoted
        if (count := count + 1) % STEPS_BETWEEN_PAUSES == 0:
            yield


def is_attribute_text(source: str, begin: int, end: int) -> bool:
    """Whether it contains words, and is not as long as a document."""
    return end - begin <= _MOST_CHARACTERS and _WORD.search(source, begin, end) is not None


def _matched(pattern: re.Pattern[str], source: str, at: int) -> int:
    match = pattern.match(source, at)
    return at if match is None else match.end()
