"""The lines of a Markdown document: what each is (CommonMark, with tables, task lists and footnotes), and which containers
it stands in. Byte for byte: every block has the places of its lines in the source.

One pass; containers are nested to a bounded depth, as in other parsers, so that a line costs no more than it has characters.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["MarkdownBlock", "markdown_blocks", "normalized"]

BlockKind = Literal["kept", "html", "paragraph", "cells"]

_CODE_INDENT = 3
"""Columns. What is indented by more is code."""
_MOST_CONTAINERS = 64
_MOST_LINES = 200
"""Of a paragraph: in a longer one the text does not go on across them."""
_MOST_CELLS = 200
"""Of a row: in one of more the last has the rest."""
_LINES_BETWEEN_PAUSES = 10
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n")
_FRONT_MATTER_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_MOST_FRONT_MATTER = 20_000
_HEADING = re.compile(r"#{1,6}(?=[ \t]|$)[ \t]*")
_SETEXT = re.compile(r"(?:=+|-+)[ \t]*$")
_RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_BULLET = re.compile(r"[-+*](?=[ \t]|$)")
_NUMBER = re.compile(r"\d{1,9}[.)](?=[ \t]|$)")
_TASK = re.compile(r"\[[ xX]\][ \t]+(?=\S)")
_ALERT = re.compile(r"\[![A-Za-z]+\][ \t]*$")
_DEFINITION = re.compile(r"\[(?!\^)((?:[^\[\]\\]|\\.){1,999})\]:[ \t]*(?=\S)")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,200}\]:[ \t]*")
_DELIMITERS = re.compile(r"\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*[ \t]*\|?")
_HTML_UNTIL = (
    (
        re.compile(r"<(?:script|pre|style|textarea)(?=[\s>]|$)", re.IGNORECASE),
        re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE),
    ),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<\?"), re.compile(r"\?>")),
    (re.compile(r"<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r"<![A-Za-z]"), re.compile(r">")),
)
_HTML_BLOCK = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl|dt|"
    r"fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|"
    r"menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title|tr|track|"
    r"ul)(?=[\s>]|/>|$)",
    re.IGNORECASE,
)
_ATTRIBUTE = r"(?:\s+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:[^\s\"'=<>`]+|'[^']*'|\"[^\"]*\"))?)"
_HTML_LINE = re.compile(rf"(?:<[A-Za-z][A-Za-z0-9-]*{_ATTRIBUTE}*\s*/?>|</[A-Za-z][A-Za-z0-9-]*\s*>)[ \t]*$")
_BLANK = re.compile(r"[ \t]*$")


@dataclass(slots=True)
class MarkdownBlock:
    """Stretches of the source, one for each line: `spans` are their places, in order. What lies between is structure.

    paragraph   running text, which may go on in the next line
    cells       of a row of a table: each span is a text of its own
    html        lines of HTML
    kept        code, rules, definitions: not translated
    """

    kind: BlockKind
    spans: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Container:
    """A quote, or an item of a list whose lines are indented by `indent` columns."""

    indent: int = 0  # 0: a quote


@dataclass(slots=True)
class _Line:
    """Where reading a line has come to: place in the source, and column."""

    source: str
    at: int
    end: int  # without the line break
    column: int = 0

    def indent(self) -> tuple[int, int]:
        """Columns of white space that follow, and the place behind them."""
        column, at = self.column, self.at
        while at < self.end and self.source[at] in " \t":
            column += 4 - column % 4 if self.source[at] == "\t" else 1
            at += 1
        return column - self.column, at

    def skip(self, columns: int) -> None:
        """Past so many columns of white space; a tab is taken as a whole."""
        until = self.column + columns
        while self.column < until and self.at < self.end and self.source[self.at] in " \t":
            self.column += 4 - self.column % 4 if self.source[self.at] == "\t" else 1
            self.at += 1

    def advance(self, at: int) -> None:
        self.column += at - self.at
        self.at = at


def markdown_blocks(source: str) -> Generator[None, None, tuple[list[MarkdownBlock], frozenset[str]]]:
    """The blocks of a document and the labels that it defines; yields where a caller may do other things."""
    reader = _Reader(source)
    start = _front_matter(source)
    number = 0
    while start < len(source):
        line = _LINE.match(source, start)
        if line is None or line.end() == start:
            break
        end = line.end()
        reader.read(_Line(source, start, start + len(line.group().rstrip("\r\n"))))
        start = end
        if (number := number + 1) % _LINES_BETWEEN_PAUSES == 0:
            yield
    reader.end_block()
    return reader.blocks, frozenset(reader.labels)


def _front_matter(source: str) -> int:
    """Where the document begins behind what programs read of it."""
    if (opened := _FRONT_MATTER.match(source)) is None:
        return 0
    closed = _FRONT_MATTER_END.search(source, opened.end(), opened.end() + _MOST_FRONT_MATTER)
    return 0 if closed is None else closed.end()


class _Reader:
    """Reads line after line; what goes on in the next line is `_block`."""

    def __init__(self, source: str) -> None:
        self.blocks: list[MarkdownBlock] = []
        self.labels: set[str] = set()
        self._source = source
        self._containers: list[_Container] = []
        self._block: MarkdownBlock | None = None
        self._until: re.Pattern[str] | None = None  # the end of HTML, or of a fence
        self._until_line = False  # whether a whole line must be that, as of a fence
        self._in_table = False

    def end_block(self) -> None:
        if self._block is not None:
            self.blocks.append(self._block)
        self._block, self._until, self._until_line, self._in_table = None, None, False, False

    def read(self, line: _Line) -> None:
        matched = self._matched(line)
        all_match = matched == len(self._containers)
        indent, text = line.indent()
        is_blank = text >= line.end
        if self._until is not None and all_match:
            self._go_on_until(line)
            return
        is_paragraph = self._block is not None and self._block.kind == "paragraph"
        if is_blank:
            self.end_block()
            del self._containers[matched:]  # a blank line ends a quote, and no item of a list
            return
        if not all_match:
            if is_paragraph and not self._in_table and not self._begins(line, indent, text):
                self._add(text, line.end)  # a lazy line
                return
            self.end_block()
            del self._containers[matched:]
        self._open_containers(line)
        indent, text = line.indent()
        if text >= line.end:
            self.end_block()
            return
        self._leaf(line, indent, text)

    def _matched(self, line: _Line) -> int:
        """How many of the open containers go on in this line."""
        for number, container in enumerate(self._containers):
            indent, text = line.indent()
            if container.indent:
                if text < line.end and indent < container.indent:
                    return number
                line.skip(container.indent)
            elif indent <= _CODE_INDENT and text < line.end and line.source[text] == ">":
                line.skip(indent)
                line.advance(text + 1)
                if line.at < line.end and line.source[line.at] in " \t":
                    line.skip(1)
            else:
                return number
        return len(self._containers)

    def _open_containers(self, line: _Line) -> None:
        while len(self._containers) < _MOST_CONTAINERS:
            indent, text = line.indent()
            in_paragraph = self._block is not None and self._block.kind == "paragraph" and not self._in_table
            if indent > _CODE_INDENT or text >= line.end:
                return
            if line.source[text] == ">":
                self.end_block()
                line.skip(indent)
                line.advance(text + 1)
                if line.at < line.end and line.source[line.at] in " \t":
                    line.skip(1)
                self._containers.append(_Container())
                continue
            marker = self._marker(line, text, in_paragraph=in_paragraph)
            if marker is None:
                return
            self.end_block()
            line.skip(indent)
            line.advance(marker.end())
            after, content = line.indent()
            width = indent + len(marker.group())
            if content >= line.end:  # an item that begins with a blank line
                self._containers.append(_Container(width + 1))
                return
            step = after if after <= 4 else 1
            line.skip(step)
            self._containers.append(_Container(width + step))

    def _marker(self, line: _Line, text: int, *, in_paragraph: bool) -> re.Match[str] | None:
        """Of an item of a list; in a paragraph not of an empty one, nor of one that does not begin with 1."""
        source, end = line.source, line.end
        if source[text] in "-*_" and _RULE.match(source, text, end):
            return None
        marker = _BULLET.match(source, text, end) or _NUMBER.match(source, text, end)
        if marker is not None and in_paragraph:
            is_empty = _BLANK.match(source, marker.end(), end) is not None
            if is_empty or (source[text].isdigit() and marker.group()[:-1] != "1"):
                return None
        return marker

    def _begins(self, line: _Line, indent: int, text: int) -> bool:
        """Whether a line begins something, so that it is no lazy part of the paragraph before it."""
        source, end = line.source, line.end
        if indent > _CODE_INDENT:
            return False
        return bool(
            source[text] == ">"
            or self._marker(line, text, in_paragraph=False)
            or _HEADING.match(source, text, end)
            or _RULE.match(source, text, end)
            or _FENCE.match(source, text, end)
            or _HTML_BLOCK.match(source, text, end)
            or any(begin.match(source, text, end) for begin, _ in _HTML_UNTIL)
        )

    def _leaf(self, line: _Line, indent: int, text: int) -> None:
        """What a line is within its containers."""
        source, end, block = line.source, line.end, self._block
        paragraph = block if block is not None and block.kind == "paragraph" else None
        if self._in_table and not self._begins(line, indent, text):
            self.blocks.append(MarkdownBlock("cells", _cells(source, text, end)))
        elif indent > _CODE_INDENT:
            if paragraph is not None:
                self._add(text, end)
            else:
                self._keep(line)
        elif paragraph is not None and self._ends_paragraph(paragraph, line, text):
            return
        elif (fence := _FENCE.match(source, text, end)) is not None:
            sign = fence.group(1) or fence.group(2)
            self.end_block()
            self._block, self._until_line = MarkdownBlock("kept"), True
            self._until = re.compile(rf"[ \t]*{re.escape(sign[0])}{{{len(sign)},}}[ \t]*$")
        elif (heading := _HEADING.match(source, text, end)) is not None:
            self.end_block()
            self._heading(source, heading.end(), end)
        elif _RULE.match(source, text, end):
            self.end_block()
        elif source[text] == "<" and self._opens_html(line, text, in_paragraph=paragraph is not None):
            return
        elif paragraph is not None:
            self._add(text, end)
        else:
            self._begin_paragraph(source, text, end)

    def _ends_paragraph(self, paragraph: MarkdownBlock, line: _Line, text: int) -> bool:
        """Whether a line makes what stands before it a heading, or the head of a table."""
        source, end = line.source, line.end
        if _SETEXT.match(source, text, end):
            self.end_block()
            return True
        if len(paragraph.spans) == 1 and self._is_table(paragraph.spans[0], (text, end)):
            self._block = MarkdownBlock("cells", _cells(source, *paragraph.spans[0]))
            self.end_block()
            self._in_table = True
            return True
        return False

    def _heading(self, source: str, start: int, end: int) -> None:
        """Without the signs that may close it."""
        title = source[start:end].rstrip(" \t")
        without_signs = title.rstrip("#")
        if without_signs != without_signs.rstrip(" \t") or not without_signs:
            title = without_signs.rstrip(" \t")
        if title:
            self.blocks.append(MarkdownBlock("paragraph", [(start, start + len(title))]))

    def _begin_paragraph(self, source: str, text: int, end: int) -> None:
        """Or something that looks like one."""
        self.end_block()
        if (definition := _DEFINITION.match(source, text, end)) is not None:
            self.labels.add(normalized(definition.group(1)))
            return
        if (footnote := _FOOTNOTE.match(source, text, end)) is not None:
            text = footnote.end()
            self._containers.append(_Container(4))
        elif self._containers and (task := _TASK.match(source, text, end)) is not None:
            text = task.end()
        elif self._containers and _ALERT.match(source, text, end):
            return
        self._block = MarkdownBlock("paragraph")
        self._add(text, end)

    def _add(self, start: int, end: int) -> None:
        if self._block is None or start >= end:
            return
        if self._block.kind == "paragraph" and len(self._block.spans) >= _MOST_LINES:
            self.end_block()
            self._block = MarkdownBlock("paragraph")
        self._block.spans.append((start, end))

    def _keep(self, line: _Line) -> None:
        if self._block is None or self._block.kind != "kept":
            self.end_block()
            self._block = MarkdownBlock("kept")
        self._block.spans.append((line.at, line.end))

    def _go_on_until(self, line: _Line) -> None:
        until = self._until
        self._add(line.at, line.end)
        if until is not None and (until.match if self._until_line else until.search)(line.source, line.at, line.end):
            self.end_block()

    def _opens_html(self, line: _Line, text: int, *, in_paragraph: bool) -> bool:
        source, end = line.source, line.end
        for begin, until in _HTML_UNTIL:
            if (opened := begin.match(source, text, end)) is not None:
                self.end_block()
                self._block, self._until = MarkdownBlock("html", [(line.at, end)]), until
                if until.search(source, opened.end(), end):
                    self.end_block()
                return True
        if _HTML_BLOCK.match(source, text, end) or (not in_paragraph and _HTML_LINE.match(source, text, end)):
            self.end_block()
            self._block = MarkdownBlock("html", [(line.at, end)])
            self._until, self._until_line = _BLANK, True
            return True
        return False

    def _is_table(self, header: tuple[int, int], row: tuple[int, int]) -> bool:
        """Whether two lines begin a table: a row of dashes with as many cells as the line before it."""
        source = self._source
        if _DELIMITERS.fullmatch(source[slice(*row)].rstrip(" \t")) is None or (
            "|" not in source[slice(*row)] and "|" not in source[slice(*header)]
        ):
            return False
        return len(_cells(source, *row)) == len(_cells(source, *header))


_CELL_SIGN = re.compile(r"\\.|\|")


def _cells(source: str, start: int, end: int) -> list[tuple[int, int]]:
    """The texts of a row, without the white space around them."""
    cells, begin = list[tuple[int, int]](), start
    for sign in _CELL_SIGN.finditer(source, start, end):
        if len(cells) >= _MOST_CELLS:
            break
        if sign.group() == "|":
            cells.append((begin, sign.start()))
            begin = sign.end()
    cells.append((begin, end))
    stripped = []
    for number, (first, last) in enumerate(cells):
        text = source[first:last]
        left = first + len(text) - len(text.lstrip(" \t"))
        if text.strip(" \t") or 0 < number < len(cells) - 1:
            stripped.append((min(left, last), max(first + len(text.rstrip(" \t")), min(left, last))))
    return stripped


def normalized(label: str) -> str:
    """What labels of links are compared by."""
    return " ".join(label.split()).casefold()
