"""Whole documents in pieces that a request can hold: paragraphs of a text, cues of subtitles, blocks of markup.

A piece is translated as one text, and the server splits it into sentences. What lies between pieces (blank lines, numbers
and times of subtitles) stays as it is. Nothing here parses markup: a long document is cut where a block ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from dragoman.client.files import check_encoding, check_output, not_utf8
from dragoman.client.markup_documents import cut_document
from dragoman.client.subtitles import are_marked, cue_text, cues, laid_out, speeches
from dragoman.drafts import draft_of
from dragoman.errors import DragomanError, UsageError

__all__ = ["DocumentKind", "Piece", "count_pieces", "kind_of_file", "pieces_of", "read_document", "write_document"]

DocumentKind = Literal["text", "subtitles", "html", "xml", "markdown"]

_KINDS: dict[str, DocumentKind] = {
    **dict.fromkeys((".srt", ".vtt"), "subtitles"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".xml", ".xlf", ".xliff", ".svg", ".rss", ".atom", ".dita"), "xml"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
}
_MOST_BYTES = 64 << 20
_MOST_CHARACTERS = 20_000
"""The limit of one piece: 80 kB at most, which every server accepts by default."""
_BREAKS = "\\n\\x0b\\x0c\\x1c-\\x1f"
_PARAGRAPH = re.compile(rf"[^\s\x1c-\x1f][^{_BREAKS}]*(?:\n[^{_BREAKS}]*[^\s{_BREAKS}][^{_BREAKS}]*)*")
"""Lines without a blank one between them; the end of a page or of a record ends one, too."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_CUTS = (re.compile(r"\n\s*"), re.compile(r"[.!?。！？][\"'”’»)\]]*\s*"), re.compile(r"\s+"))
"""Where a piece that is too long is cut: after lines, after sentences, between words."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` is translated; `before` stays as it is. `lines`: of a cue, how many each of its speeches has, with `line_end`
    between them. One that is `is_marked` is sent as HTML; so are the others of its document.

    `context` is what the server must see before and behind the text, and what it returns as it is.
    """

    before: str
    text: str
    lines: tuple[int, ...] = ()
    is_marked: bool = False
    context: tuple[str, str] = ("", "")
    line_end: str = "\n"

    @property
    def sent(self) -> str:
        """What the server gets."""
        return self.context[0] + self.text + self.context[1]

    def written(self, translation: str) -> str:
        """What stands for the piece in the translated document."""
        before, behind = self.context
        if not (translation.startswith(before) and translation.endswith(behind)):
            raise DragomanError("the server has changed what surrounds a piece of a document; send the document as a whole")
        translation = translation[len(before) : len(translation) - len(behind)]
        if self.lines:
            translation = self.line_end.join(laid_out(translation, self.lines, is_marked=self.is_marked))
        return self.before + translation


def kind_of_file(path: Path, text_format: str | None = None, is_document: bool | None = None) -> DocumentKind | None:
    """What a file is translated as, as a whole, by its format and the end of its name; None for plain lines."""
    if is_document is False:
        return None
    if text_format not in {None, "text"}:
        return cast("DocumentKind", text_format)
    own = _KINDS.get(path.suffix.lower())
    if own is not None and (text_format is None or own == "subtitles"):
        return own
    return "text" if is_document else None


def pieces_of(document: str, kind: DocumentKind) -> Iterator[Piece]:
    """The document in pieces; the last has what follows them, and no text."""
    if kind == "subtitles":
        return _cues(document)
    return _paragraphs(document) if kind == "text" else _blocks(document, kind)


def count_pieces(path: Path, kind: DocumentKind) -> int:
    """How many pieces of a document are translated."""
    return sum(bool(piece.text) for piece in pieces_of(read_document(path), kind))


def read_document(path: Path) -> str:
    """A whole UTF-8 file with the line ends it has."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{path} has more than {_MOST_BYTES:,} bytes; translate it line by line (document=False)")
    check_encoding(raw, str(path))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(str(path), raw, error.start) from None


def write_document(path: Path, pieces: Sequence[str]) -> None:
    """The whole file at once: it has its old content until the new one is complete."""
    check_output(path)
    with draft_of(path) as draft, draft.open("wb") as stream:
        stream.writelines(piece.encode() for piece in pieces)


def _blocks(document: str, kind: DocumentKind) -> Iterator[Piece]:
    """Pieces of markup; white space alone is not sent."""
    waiting = ""
    for start, end, before, behind in cut_document(document, kind):
        if document[start:end].isspace() or start == end:
            waiting += document[start:end]
            continue
        yield Piece(waiting, document[start:end], context=(before, behind))
        waiting = ""
    yield Piece(waiting, "")


def _paragraphs(document: str) -> Iterator[Piece]:
    end = 0
    for paragraph in _PARAGRAPH.finditer(document):
        start = paragraph.start()
        for cut in _cut(document, start, paragraph.end()):
            yield Piece(document[end:start], document[start:cut])
            start = end = cut
    yield Piece(document[end:], "")


def _cut(document: str, start: int, end: int) -> Iterator[int]:
    """The ends of the pieces of document[start:end], none of them too long where that is possible."""
    while end - start > _MOST_CHARACTERS:
        window = document[start : start + _MOST_CHARACTERS]
        found = (_last_end(pattern, window) for pattern in _CUTS)
        start += next((cut for cut in found if cut), _MOST_CHARACTERS)
        yield start
    if start < end:
        yield end


def _last_end(pattern: re.Pattern[str], window: str) -> int:
    """The end of the last match in the second half of the window; 0 without one."""
    return max((match.end() for match in pattern.finditer(window, len(window) // 2)), default=0)


def _cues(document: str) -> Iterator[Piece]:
    """Numbers and times stay."""
    end, is_marked = 0, are_marked(document)
    line_end = next((each for each in ("\r\n", "\n", "\r") if each in document), "\n")
    for start, stop in cues(document):
        lines = [line.strip() for line in _LINE_END.split(document[start:stop])]
        if said := speeches(list(filter(None, lines))):
            counts = tuple(map(len, said))
            text = cue_text(said, is_marked=is_marked)
            yield Piece(document[end:start], text, counts, is_marked, line_end=line_end)
            end = stop
    yield Piece(document[end:], "")
