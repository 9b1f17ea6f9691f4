"""Texts that are more than the model takes at once: parts that are translated one by one, and joined as they stood.

Splitting is linear in the length of the text: each span is tokenised a bounded number of times, and nothing longer than a
model could take is tokenised at all. It runs in slices, so that a long text does not hold up its neighbours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.errors import InvalidRequest
from dragoman.serving.sentences import sentence_spans, weak_spans

__all__ = ["Document", "LongInput", "plan_document"]

LongInput = Literal["split", "refuse"]
"""What to do with a sentence longer than the model's limit: split it at punctuation, or refuse it."""

_Span = tuple[int, int]
_LINE_BREAK = re.compile(r"[\r\n\u2028\u2029\x0b\x0c]")
_WEAKER_AND_WEAKER = (";:—–", ",", " ")
"""Where a sentence is split that is too long: between clauses, then at commas, then at any space."""
_PIECES_OF_A_LIMIT = 3
"""A sentence that must be split becomes pieces of a third of the model's limit: closer to what models were trained on than
the longest they take, and encoding one does not hold up others for long."""
_SMALL_LIMIT = 64
_LONGEST_TOKEN = 16
"""Characters. A text of more than so many for each token the model takes is too long without being tokenised."""
_CHARACTERS_BETWEEN_PAUSES = 2048
_PER_CALL = 40
"""Measuring anything costs as much as tokenising so many characters."""


@dataclass(frozen=True, slots=True)
class Document:
    """Parts to translate, each within the model's limit, and the white space around them: one gap more than parts."""

    parts: tuple[str, ...]
    gaps: tuple[str, ...]


def plan_document(
    text: str,
    count_tokens: Callable[[str], int],
    max_tokens: int,
    *,
    lead: str = "",
    language: str | None = None,
    long_input: LongInput = "split",
    sentences: bool = False,
) -> Generator[None, None, Document]:
    """Split `text` if it is longer than `max_tokens` or has several lines; with `sentences`, at every sentence.

    `lead` is what `text` begins with and every part needs: a language token (`>>deu<<`). Nothing is ever left out: a part
    that can't be made short enough is an InvalidRequest. Yields where a caller with other things to do should do them.
    """
    body = text[len(lead) :]
    measure = _Measure(lead, body, count_tokens, max_tokens)
    has_lines = _LINE_BREAK.search(body.strip()) is not None
    if not (sentences or has_lines) and measure.fits(0, len(body)):
        return Document((text,), ("", ""))
    document = _Builder(lead, body)
    for sentence in sentence_spans(body, language):
        if sentence is None or measure.is_pause_due():
            yield
        if sentence is None:
            continue
        if measure.fits(*sentence):
            document.add(*sentence)
        elif long_input == "refuse":
            raise InvalidRequest(
                f"a sentence of {sentence[1] - sentence[0]} characters has more tokens than the model takes ({max_tokens}); "
                "shorten it or ask for long_input='split'"
            )
        else:
            for piece in _pieces(measure, *sentence):
                if piece is None:
                    yield
                else:
                    document.add(*piece)
    return document.built()


class _Builder:
    """Collects the parts of a document and what stands between them."""

    def __init__(self, lead: str, body: str) -> None:
        self._lead, self._body = lead, body
        self._parts: list[str] = []
        self._gaps: list[str] = []
        self._end = 0

    def add(self, start: int, end: int) -> None:
        """The next part is body[start:end]."""
        self._gaps.append(self._body[self._end : start])
        self._parts.append(self._lead + self._body[start:end])
        self._end = end

    def built(self) -> Document:
        return Document(tuple(self._parts), (*self._gaps, self._body[self._end :]))


class _Measure:
    """How many tokens stretches of a text have."""

    def __init__(self, lead: str, body: str, count_tokens: Callable[[str], int], max_tokens: int) -> None:
        self.body, self.max_tokens = body, max_tokens
        self._lead, self._count_tokens = lead, count_tokens
        self._longest = max(1024, _LONGEST_TOKEN * max_tokens)  # characters
        self._around = count_tokens(lead)  # tokens of every part, whatever it says
        self.room = min(max_tokens, max(max_tokens // _PIECES_OF_A_LIMIT, _SMALL_LIMIT)) - self._around
        self._since_pause = 0

    def fits(self, start: int, end: int) -> bool:
        """Whether body[start:end] is within the model's limit."""
        self._since_pause += _PER_CALL
        if end - start > self._longest:
            return False
        if end - start <= self.room - 1 and self._is_surely_short(self.body[start:end]):
            return True
        return self._measured(start, end) <= self.max_tokens

    def tokens(self, start: int, end: int) -> int:
        """Tokens of body[start:end] itself; more than there is room for when it is far too long."""
        if end - start > self._longest:
            return self.room + 1
        return self._measured(start, end) - self._around

    def is_pause_due(self) -> bool:
        """Whether much has been tokenised since this was last true."""
        if self._since_pause < _CHARACTERS_BETWEEN_PAUSES:
            return False
        self._since_pause = 0
        return True

    def _is_surely_short(self, piece: str) -> bool:
        """A token is at least a byte, once characters are as tokenizers make them; one more marks the first word."""
        return len(piece.encode()) + 1 <= self.room and unicodedata.is_normalized("NFKC", piece)

    def _measured(self, start: int, end: int) -> int:
        self._since_pause += end - start + _PER_CALL
        return self._count_tokens(self._lead + self.body[start:end])


def _pieces(measure: _Measure, start: int, end: int, level: int = 0) -> Iterator[_Span | None]:
    """Split what does not fit at the strongest marks that do; neighbours stay together where they fit. None is a pause."""
    if level == len(_WEAKER_AND_WEAKER):
        if measure.fits(start, end):
            yield start, end
            return
        raise InvalidRequest(
            f"a word of {end - start} characters is more than the {measure.max_tokens} tokens that the model takes"
        )
    together: list[_Span] = []
    tokens = 0
    for span in weak_spans(measure.body, start, end, _WEAKER_AND_WEAKER[level]):
        if span is None or measure.is_pause_due():
            yield None
        if span is None:
            continue
        # With the white space before it, if it goes on: some tokenizers count that, too.
        more = measure.tokens(together[-1][1] if together else span[0], span[1])
        if together and tokens + more > measure.room:
            yield from _fitting(measure, together)
            together, tokens, more = [], 0, measure.tokens(*span)
        if more > measure.room:
            yield from _pieces(measure, *span, level + 1)
        else:
            together.append(span)
            tokens += more
    yield from _fitting(measure, together)


def _fitting(measure: _Measure, together: Sequence[_Span]) -> Iterator[_Span]:
    """These as one piece; as two if together they have more tokens than each for itself, which is rare."""
    if not together:
        return
    if len(together) == 1 or measure.fits(together[0][0], together[-1][1]):
        yield together[0][0], together[-1][1]
        return
    middle = len(together) // 2
    yield from _fitting(measure, together[:middle])
    yield from _fitting(measure, together[middle:])
