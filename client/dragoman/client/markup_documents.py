"""Long documents of HTML, XML and Markdown in pieces, cut where blocks end. Nothing here parses them: tags are counted.

A piece is translated as it would be within the whole document: what the server must know of the rest of the document comes
with it as context, which is removed again (in XML the open elements, in Markdown the targets of links).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["cut_document"]

_MOST_CHARACTERS = 20_000
"""The limit of one piece, unless a block is longer."""

_TAG = re.compile(
    r"""<!--.*?(?:-->|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <\?.*?(?:\?>|\Z) | <!DOCTYPE[^\[>]{0,2000}(?:\[.*?\]\s*)?>
    | <![^>]*>
    | <(?P<end>/?)(?P<name>[A-Za-z_:][^\s/>]*)(?P<rest>(?:"[^"]{0,5000}"|'[^']{0,5000}'|[^"'>]){0,5000})>""",
    re.DOTALL | re.VERBOSE | re.IGNORECASE,
)
_KEPT = re.compile(
    r"""\btranslat(?:e\s*=\s*["']?no|able\s*=\s*["']?false)\b|\bclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE
)


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_RAW = _names("""
    script style pre textarea code iframe svg math template object video audio canvas
""")
_EMPTY = _names("""
    area base br col embed frame hr img input link meta param source track wbr
""")
_BLOCKS = _names("""
    article aside blockquote dd div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header li main nav ol
    p section table tbody td th thead tr ul
""")
_TEXTS = re.compile(r"""\s(?:alt|title|placeholder|label|aria-[a-z]+)\s*=\s*(?:"[^"]*"|'[^']*')""", re.IGNORECASE)

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HTML_UNTIL = (
    (
        re.compile(r" {0,3}<(?:script|pre|style|textarea)(?=[\s>]|$)", re.IGNORECASE),
        re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE),
    ),
    (re.compile(r" {0,3}<!--"), re.compile("-->")),
)
_DEFINITION = re.compile(r" {0,3}\[(?!\^)([^\[\]\n]{1,999})\]:[ \t]*\S")
_DEFINITION_LABEL = re.compile(r" {0,3}\[(?!\^)([^\[\]\n]{1,999})\]:[ \t]*$")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.{0,20000}?\n(?:---|\.\.\.)[ \t]*(?=\r?\n|$)", re.DOTALL)


class Cut(NamedTuple):
    """The end of a piece, and what the piece that begins there needs before it."""

    end: int
    before: str = ""


def cut_document(document: str, kind: str) -> Iterator[tuple[int, int, str, str]]:
    """Start and end of each piece, and what it needs before and behind it."""
    if len(document) <= _MOST_CHARACTERS:
        yield 0, len(document), "", ""
        return
    cuts, behind = _CUTTERS[kind](document)
    ends = [cut.end for cut in cuts]
    start, before = 0, ""
    while start < len(document):
        last = bisect.bisect_right(ends, start + _MOST_CHARACTERS) - 1
        if last < 0 or ends[last] <= start:
            last += 1
        following = cuts[last] if last < len(cuts) and len(document) - start > _MOST_CHARACTERS else Cut(len(document))
        yield start, following.end, before, behind(document[start : following.end])
        start, before = following.end, following.before


def _html_cuts(document: str) -> tuple[list[Cut], Callable[[str], str]]:
    """Before and behind tags of blocks, outside of what is kept."""
    cuts: list[Cut] = []
    kept, depth = "", 0
    for tag in _TAG.finditer(document):
        name = (tag.group("name") or "").lower()
        if not name or name in _EMPTY:
            continue
        is_end = bool(tag.group("end"))
        if kept:
            depth += (name == kept) * (-1 if is_end else 1)
            kept = kept if depth else ""
        elif not is_end and (name in _RAW or _KEPT.search(tag.group("rest"))):
            kept, depth = name, 1
        elif name in _BLOCKS:
            cuts.append(Cut(tag.end() if is_end else tag.start()))
    return cuts, _nothing


class _Element(NamedTuple):
    name: str
    raw: str
    number: int
    is_kept: bool


def _xml_cuts(document: str) -> tuple[list[Cut], Callable[[str], str]]:
    """Behind elements that stand among others, not in running text."""
    found: list[tuple[int, tuple[_Element, ...]]] = []
    with_text: set[int] = set()
    open_elements: list[_Element] = []
    end = number = 0
    last_name = ""
    for tag in _TAG.finditer(document):
        between = document[end : tag.start()]
        if open_elements and (between.strip() or tag.group().startswith("<![CDATA[")):
            with_text.add(open_elements[-1].number)
        if end and not between.strip() and last_name.rpartition(":")[2] != "source" and len(open_elements) <= _DEEPEST:
            found.append((end, tuple(open_elements)))
        name, last_name, end = tag.group("name"), "", tag.end()
        if name is None:
            continue
        if tag.group("end"):
            if any(element.name == name for element in open_elements[-_DEEPEST:]):
                while open_elements.pop().name != name:
                    pass
                last_name = name
        elif not tag.group().endswith("/>"):
            is_kept = bool(_KEPT.search(tag.group("rest"))) or name.lower() in _RAW
            open_elements.append(
                _Element(name, tag.group(), number, is_kept or (bool(open_elements) and open_elements[-1].is_kept))
            )
            number += 1
    cuts = []
    for place, elements in found:
        if elements and not elements[-1].is_kept and not any(element.number in with_text for element in elements):
            cuts.append(Cut(place, "".join(_TEXTS.sub("", element.raw) for element in elements)))
    return _shallow(cuts, found), _nothing


_DEEPEST = 32


def _shallow(cuts: list[Cut], found: list[tuple[int, tuple[_Element, ...]]]) -> list[Cut]:
    """In each window the cuts with the fewest elements around them: the others may be in the middle of something."""
    depths = {place: len(elements) for place, elements in found}
    kept: list[Cut] = []
    windows: dict[int, list[Cut]] = {}
    for cut in cuts:
        windows.setdefault(cut.end // (_MOST_CHARACTERS // 2), []).append(cut)
    for each in windows.values():
        least = min(depths[cut.end] for cut in each)
        kept += [cut for cut in each if depths[cut.end] == least]
    return kept


def _markdown_cuts(document: str) -> tuple[list[Cut], Callable[[str], str]]:
    """Behind blank lines before a line that is not indented, outside of code and of HTML that goes on."""
    cuts: list[Cut] = []
    definitions: dict[str, str] = {}
    matter = _FRONT_MATTER.match(document)
    at = matter.end() if matter else 0
    until: re.Pattern[str] | None = None
    after_blank, label = False, ""
    for line in document[at:].splitlines(keepends=True):
        text = line.rstrip("\r\n")
        if until is not None:
            if until.search(text):
                until = None
        elif (fence := _FENCE.match(text)) is not None:
            sign = fence.group(1)
            until = re.compile(rf"^ {{0,3}}{re.escape(sign[0])}{{{len(sign)},}}[ \t]*$")
        else:
            if after_blank and text and not text[0].isspace():
                cuts.append(Cut(at))
            for begin, end in _HTML_UNTIL:
                if (opened := begin.match(text)) is not None and not end.search(text, opened.end()):
                    until = end
            whole = f"{label} {text.strip()}".strip() if text.strip() else ""
            label = text.strip() if _DEFINITION_LABEL.match(text) is not None else ""  # its place stands in the next line
            if (definition := _DEFINITION.match(whole)) is not None:
                definitions.setdefault(" ".join(definition.group(1).split()).casefold(), whole)
        after_blank = not text.strip()
        at += len(line)

    def behind(piece: str) -> str:
        own = " ".join(piece.split()).casefold()
        needed = [line for label, line in definitions.items() if f"[{label}]" in own]
        return "\n\n" + "\n".join(needed) + "\n" if needed else ""

    return cuts, behind


def _nothing(_: str) -> str:
    return ""


_CUTTERS: Mapping[str, Callable[[str], tuple[list[Cut], Callable[[str], str]]]] = {
    "html": _html_cuts,
    "xml": _xml_cuts,
    "markdown": _markdown_cuts,
}
