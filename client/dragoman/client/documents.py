"""Whole documents in pieces that a request can hold: paragraphs of a text, cues of subtitles, blocks of markup.

A piece is translated as one text, and the server splits it into sentences. What lies between pieces (blank lines, numbers
and times of subtitles) stays as it is. Nothing here parses markup: a long document is cut where a block ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from dragoman.client.files import check_output
from dragoman.client.markup_documents import cut_document
from dragoman.client.subtitles import are_marked, cue_text, laid_out, speeches
from dragoman.errors import DragomanError, UsageError

__all__ = ["DocumentKind", "Piece", "count_pieces", "kind_of_file", "pieces_of", "read_document", "write_document"]

DocumentKind = Literal["text", "subtitles", "html", "xml", "markdown"]

_KINDS: dict[str, DocumentKind] = {
    ".srt": "subtitles",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".xml", ".xlf", ".xliff"), "xml"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
}
_MOST_BYTES = 64 << 20
_MOST_CHARACTERS = 20_000
"""The limit of one piece: 80 kB at most, which every server accepts by default."""
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\n]*\S[^\n]*)*")
"""Lines without a blank one between them."""
_TIMES = re.compile(r"[ \t]*\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->[^\n]*\n?")
_IN_SIGHT = 200
"""Characters of a cue in which its times stand."""
_CUTS = (re.compile(r"\n\s*"), re.compile(r"[.!?。！？][\"'”’»)\]]*\s*"), re.compile(r"\s+"))
"""Where a piece that is too long is cut: after lines, after sentences, between words."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` is translated; `before` stays as it is. `lines`: of a cue, how many each of its speeches has. One that
    is `is_marked` is sent as HTML; so are the others of its document.

    `context` is what the server must see before and behind the text, and what it returns as it is.
    """

    before: str
    text: str
    lines: tuple[int, ...] = ()
    is_marked: bool = False
    context: tuple[str, str] = ("", "")

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
        return self.before + (laid_out(translation, self.lines, is_marked=self.is_marked) if self.lines else translation)


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
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 (byte 0x{raw[error.start]:02x} at {error.start + 1}); "
            "convert it first, for example with iconv -f latin1 -t utf-8"
        ) from None


def write_document(path: Path, pieces: Sequence[str]) -> None:
    """The whole file at once: it has its old content until the new one is complete."""
    check_output(path)
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("wb") as stream:
            stream.writelines(piece.encode() for piece in pieces)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


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
    """Number and times stay."""
    end, is_marked = 0, are_marked(document)
    for paragraph in _PARAGRAPH.finditer(document):
        block = paragraph.group()
        times = _TIMES.search(document, paragraph.start(), min(paragraph.end(), paragraph.start() + _IN_SIGHT))
        start = times.end() if times else paragraph.start()
        lines = [line.strip() for line in document[start : paragraph.end()].split("\n")]
        if said := speeches(list(filter(None, lines))):
            last = paragraph.start() + len(block.rstrip())
            counts = tuple(map(len, said))
            yield Piece(document[end:start], cue_text(said, is_marked=is_marked), counts, is_marked)
            end = last
    yield Piece(document[end:], "")
