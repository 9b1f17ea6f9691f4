"""Running text of Markdown as tokens: code, links, images, emphasis, HTML and line breaks, by the rules of CommonMark."""

from __future__ import annotations

import bisect
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from dragoman.serving.text.attributes import is_attribute_text
from dragoman.serving.text.html_tokens import html_tokens
from dragoman.serving.text.markdown_blocks import normalized
from dragoman.serving.text.markdown_emphasis import Signs, match_signs, signs_at
from dragoman.serving.text.markdown_text import MARKDOWN_TITLE, unescaped, unescaped_slowly
from dragoman.serving.text.markup_tokens import AttributeText, Kind, MarkupToken, Style

__all__ = ["inline_tokens"]

_STEPS_BETWEEN_PAUSES = 75
_SIGN = re.compile(r"[\\`*_~<!\[\]:\n]")
_RUN = re.compile(r"`+|\*+|_+|~+")
_BACKTICKS = re.compile(r"`+")
_BREAK = re.compile(r" {2,}\n| *\\\n")
_AUTOLINK = re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]{0,2000}|[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w.-]{1,255})>")
_ATTRIBUTE = r"(?:\s+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:[^\s\"'=<>`]+|'[^']*'|\"[^\"]*\"))?)"
_HTML = re.compile(rf"<[A-Za-z][A-Za-z0-9-]*{_ATTRIBUTE}*\s*/?>|</[A-Za-z][A-Za-z0-9-]*\s*>")
_HTML_ASIDES = (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"))
_EMOJI = re.compile(r":(?=[\d+_-]*[a-z])[a-z0-9_+-]{2,30}:")
_FOOTNOTE = re.compile(r"\[\^[^\s\[\]]{1,200}\]")
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999})\]")
_TARGET = re.compile(
    r"""\(\s{0,20}(?:<(?:[^<>\n\\]|\\.){0,2000}>|(?:[^\s()<\\]|\\.|\((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.){0,500}\)){0,500}\))
    (?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.){0,500}\)){0,500}\)){0,2000})?
    (?:\s{1,20}(?:"(?P<double>(?:[^"\\]|\\.){0,1000})"|'(?P<single>(?:[^'\\]|\\.){0,1000})'|\((?P<round>(?:[^()\\]|\\.){0,1000})\)))?
    \s{0,20}\)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Node:
    """content[start:end]: a token, a run of signs, or text."""

    start: int
    end: int
    token: MarkupToken | None = None
    signs: Signs | None = None


@dataclass(slots=True)
class _Bracket:
    node: int
    end: int
    is_image: bool
    runs: int  # how many runs of signs there were before it
    has_inner: bool = False


class _Content:
    """The lines of a block as one text, and where its characters stand in the source."""

    def __init__(self, source: str, spans: Sequence[tuple[int, int]]) -> None:
        self._source, self._spans = source, spans
        self._starts: list[int] = []
        length = 0
        for start, end in spans:
            self._starts.append(length)
            length += end - start + 1
        self.text = "\n".join(source[start:end] for start, end in spans)

    def place(self, at: int) -> int:
        line = bisect.bisect_right(self._starts, at) - 1
        return self._spans[line][0] + at - self._starts[line]

    def raw(self, start: int, end: int) -> str:
        return self._source[self.place(start) : self.place(end)]


def inline_tokens(
    source: str, spans: Sequence[tuple[int, int]], labels: frozenset[str], style: Style
) -> Generator[None, None, list[MarkupToken]]:
    """The tokens that make up a block, from the beginning of its first span to the end of its last."""
    return (yield from _Inline(_Content(source, spans), labels, style).tokens())


class _Inline:
    def __init__(self, content: _Content, labels: frozenset[str], style: Style) -> None:
        self._content, self._text = content, content.text
        self._labels, self._style = labels, style
        self._nodes: list[_Node] = []
        self._runs: list[Signs] = []
        self._brackets: list[_Bracket] = []
        self._without_links = 0  # brackets before this one are in no link: links are not nested
        self._pairs = 0
        self._code_ends: dict[int, list[int]] | None = None
        self._missing: set[str] = set()  # ends that do not come any more

    def tokens(self) -> Generator[None, None, list[MarkupToken]]:
        text, at, begin, steps = self._text, 0, 0, 0
        while (sign := _SIGN.search(text, at)) is not None:
            if (steps := steps + 1) % _STEPS_BETWEEN_PAUSES == 0:
                yield
            start = sign.start()
            node = yield from self._node(start)
            if node is None:  # a sign like any other; an escaped one belongs to it
                at = start + 2 if text[start] == "\\" else start + 1
                continue
            if begin < node.start:
                self._nodes.append(_Node(begin, node.start))
            at = begin = node.end
            if node.end > node.start:
                self._nodes.append(node)
            if text[start] in "![" and node.token is None and node.signs is None:
                self._open(node)
            elif text[start] == "]":
                begin = at = yield from self._close(node)
        if begin < len(text):
            self._nodes.append(_Node(begin, len(text)))
        self._pairs = yield from match_signs(self._runs, self._pairs)
        return (yield from self._written())

    def _node(self, at: int) -> Generator[None, None, _Node | None]:
        """What begins with the sign at this place; None for a sign that means nothing."""
        text, sign = self._text, self._text[at]
        if sign == "\n" or (sign == "\\" and text.startswith("\n", at + 1)):
            return self._line_break(at)
        if sign == "`":
            return self._code(at)
        if sign in "*_~":
            end = _end(_RUN, text, at)
            signs = signs_at(text, at, end)
            if signs.can_open or signs.can_close:
                self._runs.append(signs)
            return _Node(at, end, signs=signs)
        if sign == "<":
            return (yield from self._angle(at))
        if sign == ":":
            return self._token_node(_EMOJI, at, Kind.ATOM)
        if sign == "[":
            return self._token_node(_FOOTNOTE, at, Kind.ASIDE) or _Node(at, at + 1)
        if sign == "!":
            return _Node(at, at + 2) if text.startswith("[", at + 1) else None
        return _Node(at, at + 1) if sign == "]" else None

    def _token_node(self, pattern: re.Pattern[str], at: int, kind: Kind) -> _Node | None:
        end = _end(pattern, self._text, at)
        return None if end == at else _Node(at, end, MarkupToken(kind, self._content.raw(at, end)))

    def _line_break(self, at: int) -> _Node | None:
        """Two spaces or a backslash at the end of a line end it; otherwise the text goes on."""
        start = at
        while start and self._text[start - 1] == " ":
            start -= 1
        found = _BREAK.match(self._text, start)
        if found is None or (self._nodes and start < self._nodes[-1].end):
            return None
        return _Node(start, found.end(), MarkupToken(Kind.ASIDE, self._content.raw(start, found.end()), is_block=True))

    def _code(self, at: int) -> _Node:
        """A code span, or signs that nothing ends."""
        behind = _end(_BACKTICKS, self._text, at)
        if self._code_ends is None:
            self._code_ends = {}
            for run in _BACKTICKS.finditer(self._text):
                self._code_ends.setdefault(run.end() - run.start(), []).append(run.start())
        ends = self._code_ends.get(behind - at, [])
        following = bisect.bisect_left(ends, behind)
        if following == len(ends):
            return _Node(at, behind, signs=Signs("`", behind - at, False, False, behind - at))
        end = ends[following] + behind - at
        raw, code = self._content.raw(at, end), self._text[at:end]
        written = code.replace("\n", " ") if "\n" in code else ""  # as the paragraph; what begins a line may begin a block
        return _Node(at, end, MarkupToken(Kind.ATOM, raw, written=written))

    def _angle(self, at: int) -> Generator[None, None, _Node | None]:
        if (node := self._token_node(_AUTOLINK, at, Kind.ATOM)) is not None:
            return node
        for begin, end in _HTML_ASIDES:
            if self._text.startswith(begin, at) and end not in self._missing:
                found = self._text.find(end, at + len(begin))
                if found >= 0:
                    return _Node(at, found + len(end), MarkupToken(Kind.ASIDE, self._content.raw(at, found + len(end))))
                self._missing.add(end)
        end_of_tag = _end(_HTML, self._text, at)
        if end_of_tag == at:
            return None
        tokens = yield from html_tokens(self._content.raw(at, end_of_tag))
        return _Node(at, end_of_tag, tokens[0]) if len(tokens) == 1 else None

    def _open(self, node: _Node) -> None:
        if self._brackets:
            self._brackets[-1].has_inner = True
        is_image = self._text[node.start] == "!"
        self._brackets.append(_Bracket(len(self._nodes) - 1, node.end, is_image, len(self._runs)))

    def _close(self, node: _Node) -> Generator[None, None, int]:
        """A closing bracket: a link, an image, or nothing. Where reading goes on."""
        if not self._brackets:
            return node.end
        bracket = self._brackets.pop()
        is_outside = len(self._brackets) < self._without_links
        self._without_links = min(self._without_links, len(self._brackets))
        if self._brackets:
            self._brackets[-1].has_inner = True
        if is_outside and not bracket.is_image:
            return node.end
        found = self._target(bracket, node)
        if found is None:
            return node.end
        end, written, title = found
        start = node.start
        titles: tuple[AttributeText, ...] = ()
        if title is not None and is_attribute_text(self._text, *title):
            first = self._content.place(start)
            begin, stop = (self._content.place(at) - first for at in title)
            titles = (AttributeText(begin, stop, unescaped(self._text[slice(*title)]), MARKDOWN_TITLE),)
        opening = self._nodes[bracket.node]
        inside = self._runs[bracket.runs :]
        del self._runs[bracket.runs :]
        self._pairs = yield from match_signs(inside, self._pairs)
        if bracket.is_image:
            image = self._image(bracket, node, end, written, titles)
            del self._nodes[bracket.node :]
            self._nodes.append(_Node(opening.start, end, image))
            return end
        name = f"[{self._pairs}"
        self._pairs += 1
        opening.token = MarkupToken(Kind.OPEN, "[", name)
        raw = self._content.raw(start, end)
        self._nodes[-1] = _Node(start, end, MarkupToken(Kind.CLOSE, raw, name, attributes=titles, written=written))
        self._without_links = len(self._brackets)
        return end

    def _target(self, bracket: _Bracket, node: _Node) -> tuple[int, str, tuple[int, int] | None] | None:
        """Behind what a closing bracket points to, what is written for it in a translation, and where a title stands."""
        text = self._text
        if (inline := _TARGET.match(text, node.end)) is not None:
            title = next((inline.span(name) for name in ("double", "single", "round") if inline.group(name)), None)
            return inline.end(), "", title
        label = _LABEL.match(text, node.end)
        if label is not None and label.group(1).strip():
            return (label.end(), "", None) if normalized(label.group(1)) in self._labels else None
        own = text[bracket.end : node.start] if not bracket.has_inner and node.start - bracket.end <= 999 else ""
        if not own.strip() or normalized(own) not in self._labels:
            return None
        written = f"][{' '.join(own.split())}]"
        return (node.end if label is None else label.end()), written, None

    def _image(
        self, bracket: _Bracket, node: _Node, end: int, written: str, titles: tuple[AttributeText, ...]
    ) -> MarkupToken:
        """Its description is a text of its own: an image stands between words."""
        opening = self._nodes[bracket.node]
        first = self._content.place(opening.start)
        start, stop = opening.end, node.start
        raw = self._content.raw(opening.start, end)
        texts: tuple[AttributeText, ...] = ()
        if is_attribute_text(self._text, start, stop) and (words := self._words(self._nodes[bracket.node + 1 : -1])).strip():
            places = self._content.place(start) - first, self._content.place(stop) - first
            texts = (AttributeText(*places, words, self._style, is_always_translated=True),)
        shift = self._content.place(node.start) - first
        moved = tuple(AttributeText(one.start + shift, one.end + shift, one.text, one.style) for one in titles)
        if texts and written:  # its label must not change with its description
            written = raw[: texts[0].end] + written
        return MarkupToken(Kind.ASIDE, raw, attributes=(*texts, *moved), written=written if texts else "")

    def _words(self, nodes: Sequence[_Node]) -> str:
        """What a description says: it has no emphasis, no links and no images."""
        pieces: list[str] = []
        for node in nodes:
            if node.signs is not None:
                pieces.append(node.signs.sign * node.signs.count)
            elif node.token is None:
                pieces.append(unescaped(self._text[node.start : node.end]))
            elif node.token.kind is Kind.ATOM:
                pieces.append(raw[1:-1] if (raw := node.token.raw).startswith("<") else raw.strip("`"))
            elif node.token.is_block:
                pieces.append(" ")
            else:
                pieces += (one.text for one in node.token.attributes if one.is_always_translated)
        return "".join(pieces).replace("\n", " ")

    def _written(self) -> Generator[None, None, list[MarkupToken]]:
        """The nodes as tokens."""
        found: list[MarkupToken] = []
        for number, node in enumerate(self._nodes):
            if number % _STEPS_BETWEEN_PAUSES == _STEPS_BETWEEN_PAUSES - 1:
                yield
            if node.token is not None:
                found.append(node.token)
                continue
            if node.signs is None:
                raw = self._content.raw(node.start, node.end)
                text = (yield from unescaped_slowly(self._text[node.start : node.end])).replace("\n", " ")
                found.append(MarkupToken(Kind.TEXT, raw, text=text, style=self._style))
                continue
            signs = node.signs
            for count, name in signs.closed:
                found.append(MarkupToken(Kind.CLOSE, signs.sign * count, name, needs_words=True))
            if signs.count:
                left = signs.sign * signs.count
                found.append(MarkupToken(Kind.TEXT, left, text=left, style=self._style))
            for count, name in reversed(signs.opened):
                found.append(MarkupToken(Kind.OPEN, signs.sign * count, name, needs_words=True))
        return found


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
