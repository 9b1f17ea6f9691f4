"""Which lines of a Markdown document begin blocks of HTML, and which end them (CommonMark)."""

from __future__ import annotations

import re

__all__ = ["BLANK", "begins_html", "html_end"]

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
BLANK = re.compile(r"[ \t]*$")


def begins_html(source: str, text: int, end: int) -> bool:
    """Whether the line source[text:end] begins HTML that also ends a paragraph."""
    return bool(_HTML_BLOCK.match(source, text, end) or any(begin.match(source, text, end) for begin, _ in _HTML_UNTIL))


def html_end(source: str, text: int, end: int, *, in_paragraph: bool) -> re.Pattern[str] | None:
    """What ends the HTML block that the line source[text:end] begins; None if it begins none."""
    for begin, until in _HTML_UNTIL:
        if begin.match(source, text, end) is not None:
            return until
    is_html = _HTML_BLOCK.match(source, text, end) or (not in_paragraph and _HTML_LINE.match(source, text, end))
    return BLANK if is_html else None
