"""The blocks of a Markdown document (CommonMark, with tables, task lists and footnotes), in one pass.

Every block has the positions of its lines in the source, so that the rest is reproduced byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

from dragoman.serving.text.markdown_containers import RULE, Containers, item_marker
from dragoman.serving.text.markdown_html import BLANK, begins_html, html_end
from dragoman.serving.text.markdown_line import CODE_INDENT, Line
from dragoman.serving.text.markdown_tables import cells, is_table

__all__ = ["MarkdownBlock", "markdown_blocks", "normalized"]

BlockKind = Literal["kept", "html", "paragraph", "cells"]

_MOST_LINES = 200
"""The limit of a paragraph: text does not continue across more lines."""
_LINES_BETWEEN_PAUSES = 8
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n")
_FRONT_MATTER_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_MOST_FRONT_MATTER = 20_000
_HEADING = re.compile(r"#{1,6}(?=[ \t]|$)[ \t]*")
_SETEXT = re.compile(r"(?:=+|-+)[ \t]*$")
_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_TASK = re.compile(r"\[[ xX]\][ \t]+(?=\S)")
_ALERT = re.compile(r"\[![A-Za-z]+\][ \t]*$")
_LABEL = r"\[(?!\^)((?:[^\[\]\\]|\\.){1,999})\]:[ \t]*"
_PLACE = r"""(?:<[^<>]*>|[^\s<]\S*)(?:[ \t]*$|[ \t]+(?=["'(]))"""  # and nothing or a title behind it
_DEFINITION = re.compile(_LABEL + _PLACE)  # `[Tom]: Hello there.` is a sentence
_DEFINITION_LABEL, _DEFINITION_PLACE = re.compile(_LABEL + "$"), re.compile(_PLACE)  # in two lines
_TITLE = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\))[ \t]*$""")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,200}\]:[ \t]*")


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


def markdown_blocks(source: str) -> Generator[None, None, tuple[list[MarkdownBlock], frozenset[str]]]:
    """The blocks of a document and the labels that it defines; yields so that the caller can do other work."""
    reader = _Reader(source)
    start = _front_matter(source)
    number = 0
    while start < len(source):
        line = _LINE.match(source, start)
        if line is None or line.end() == start:
            break
        end = line.end()
        reader.read(Line(source, start, start + len(line.group().rstrip("\r\n"))))
        start = end
        if (number := number + 1) % _LINES_BETWEEN_PAUSES == 0:
            yield
    reader.end_block()
    return reader.blocks, frozenset(reader.labels)


def normalized(label: str) -> str:
    """The form in which labels of links are compared."""
    return " ".join(label.split()).casefold()


def _front_matter(source: str) -> int:
    """Where the document begins after its front matter."""
    if (opened := _FRONT_MATTER.match(source)) is None:
        return 0
    closed = _FRONT_MATTER_END.search(source, opened.end(), opened.end() + _MOST_FRONT_MATTER)
    return 0 if closed is None else closed.end()


class _Reader:
    """Reads the document line by line; `_block` is the block that may continue in the next line."""

    def __init__(self, source: str) -> None:
        self.blocks: list[MarkdownBlock] = []
        self.labels: set[str] = set()
        self._source = source
        self._containers = Containers()
        self._block: MarkdownBlock | None = None
        self._until: re.Pattern[str] | None = None  # the end of HTML, or of a fence
        self._until_line = False  # whether a whole line must be that, as of a fence
        self._in_table = False
        self._awaits_title = False  # of the definition in the line before
        self._awaits_place = ""  # its label, where the line has nothing else

    @property
    def _paragraph(self) -> MarkdownBlock | None:
        """The open paragraph, if there is one."""
        return self._block if self._block is not None and self._block.kind == "paragraph" else None

    def end_block(self) -> None:
        if self._block is not None:
            self.blocks.append(self._block)
        self._block, self._until, self._until_line, self._in_table = None, None, False, False
        self._awaits_title, self._awaits_place = False, ""

    def read(self, line: Line) -> None:
        matched = self._containers.matched(line)
        all_match = matched == len(self._containers)
        indent, text = line.indent()
        if self._until is not None and all_match:
            self._go_on_until(line)
            return
        if text >= line.end:
            self.end_block()
            self._containers.close(matched)  # a blank line ends a quote, and no item of a list
            self._containers.close_empty()
            return
        if not all_match:
            if self._paragraph is not None and not self._begins(line, indent, text):
                self._go_on(text, line.end)  # a lazy line
                return
            self.end_block()
            self._containers.close(matched)
        self._read_rest(line)

    def _read_rest(self, line: Line) -> None:
        """Read the rest of a line after its containers."""
        self._containers.note_content()
        while self._containers.open_next(line, in_paragraph=self._paragraph is not None):
            self.end_block()
        indent, text = line.indent()
        if text >= line.end:
            self.end_block()
        else:
            self._leaf(line, indent, text)

    def _begins(self, line: Line, indent: int, text: int) -> bool:
        """Whether a line begins a new block, so that it does not continue the paragraph before it."""
        source, end = line.source, line.end
        return indent <= CODE_INDENT and bool(
            source[text] == ">"
            or item_marker(source, text, end, in_paragraph=False)
            or _HEADING.match(source, text, end)
            or RULE.match(source, text, end)
            or _FENCE.match(source, text, end)
            or begins_html(source, text, end)
        )

    def _leaf(self, line: Line, indent: int, text: int) -> None:
        """The block within the containers that a line begins."""
        source, end, paragraph = line.source, line.end, self._paragraph
        if self._in_table and indent <= CODE_INDENT and not self._begins(line, indent, text):
            self.blocks.append(MarkdownBlock("cells", cells(source, text, end)))
        elif indent > CODE_INDENT:
            if paragraph is not None:
                self._go_on(text, end)
            else:
                self._keep(line)
        elif paragraph is not None and self._ends_paragraph(paragraph, text, end):
            return
        elif (fence := _FENCE.match(source, text, end)) is not None:
            sign = fence.group(1) or fence.group(2)
            self.end_block()
            self._block, self._until_line = MarkdownBlock("kept"), True
            self._until = re.compile(rf"[ \t]*{re.escape(sign[0])}{{{len(sign)},}}[ \t]*$")
        elif (heading := _HEADING.match(source, text, end)) is not None:
            self.end_block()
            self._heading(source, heading.end(), end)
        elif RULE.match(source, text, end):
            self.end_block()
        elif source[text] == "<" and self._opens_html(line, text, in_paragraph=paragraph is not None):
            return
        elif paragraph is not None:
            self._go_on(text, end)
        else:
            self._begin_paragraph(source, text, end)

    def _ends_paragraph(self, paragraph: MarkdownBlock, text: int, end: int) -> bool:
        """Whether a line makes what stands before it a heading, or the line before it the head of a table."""
        source = self._source
        if _SETEXT.match(source, text, end):
            self.end_block()
            return True
        header = paragraph.spans[-1]
        if not is_table(source, header, (text, end)):
            return False
        paragraph.spans.pop()
        if not paragraph.spans:
            self._block = None
        self.end_block()
        self.blocks.append(MarkdownBlock("cells", cells(source, *header)))
        self._in_table = True
        return True

    def _heading(self, source: str, start: int, end: int) -> None:
        """Without the closing #s."""
        title = source[start:end].rstrip(" \t")
        without_signs = title.rstrip("#")
        if without_signs != without_signs.rstrip(" \t") or not without_signs:
            title = without_signs.rstrip(" \t")
        if title:
            self.blocks.append(MarkdownBlock("paragraph", [(start, start + len(title))]))

    def _begin_paragraph(self, source: str, text: int, end: int) -> None:
        """Or something that looks like one."""
        awaits_title = self._awaits_title
        self.end_block()
        if awaits_title and _TITLE.match(source, text, end):
            return
        if (definition := _DEFINITION.match(source, text, end)) is not None:
            self.labels.add(normalized(definition.group(1)))
            self._awaits_title = definition.end() == end
            return
        if (footnote := _FOOTNOTE.match(source, text, end)) is not None:
            text = footnote.end()
            self._containers.open_footnote()
        elif self._containers and (task := _TASK.match(source, text, end)) is not None:
            text = task.end()
        elif self._containers and _ALERT.match(source, text, end):
            return
        self._block = MarkdownBlock("paragraph")
        self._add(text, end)
        if (label := _DEFINITION_LABEL.match(source, text, end)) is not None:
            self._awaits_place = label.group(1)

    def _go_on(self, text: int, end: int) -> None:
        """The next line of a paragraph, or of a definition that looked like one."""
        label, self._awaits_place = self._awaits_place, ""
        if label and (place := _DEFINITION_PLACE.match(self._source, text, end)) is not None:
            self._block = None
            self.labels.add(normalized(label))
            self._awaits_title = place.end() == end
        else:
            self._add(text, end)

    def _add(self, start: int, end: int) -> None:
        if self._block is None or start >= end:
            return
        if self._block.kind == "paragraph" and len(self._block.spans) >= _MOST_LINES:
            self.end_block()
            self._block = MarkdownBlock("paragraph")
        self._block.spans.append((start, end))

    def _keep(self, line: Line) -> None:
        if self._block is None or self._block.kind != "kept":
            self.end_block()
            self._block = MarkdownBlock("kept")
        self._block.spans.append((line.at, line.end))

    def _go_on_until(self, line: Line) -> None:
        until = self._until
        self._add(line.at, line.end)
        if until is not None and (until.match if self._until_line else until.search)(line.source, line.at, line.end):
            self.end_block()

    def _opens_html(self, line: Line, text: int, *, in_paragraph: bool) -> bool:
        until = html_end(line.source, text, line.end, in_paragraph=in_paragraph)
        if until is None:
            return False
        self.end_block()
        self._block, self._until = MarkdownBlock("html", [(line.at, line.end)]), until
        if until is BLANK:
            self._until_line = True
        elif until.search(line.source, text, line.end):
            self.end_block()
        return True
