"""Splits a stretch of text that is longer than the model accepts into pieces that are not."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence

from dragoman.errors import InvalidRequest
from dragoman.serving.text.sentences import sentence_spans, weak_spans

__all__ = ["Measure", "longest_text", "pieces"]

_Span = tuple[int, int]
_SENTENCES = "sentences"
_WEAKER_AND_WEAKER = (_SENTENCES, ";:—–", ",", " ")
"""Where a text is split that is too long: at sentences, between clauses, then at commas, then at any space."""
_PIECES_OF_A_LIMIT = 3
"""What must be split becomes pieces of a third of the model's limit: closer to what models were trained on than the longest
they take, and encoding one does not hold up others for long."""
_SMALL_LIMIT = 64
_LONGEST_TOKEN = 16
"""Characters. A text of more than so many for each token the model takes is too long without being tokenised."""
_CHARACTERS_BETWEEN_PAUSES = 2048
_PER_CALL = 40
"""Measuring anything costs as much as tokenising so many characters."""


def longest_text(max_tokens: int) -> int:
    """In characters: a longer text certainly has more tokens than these, so it need not be tokenised."""
    return max(1024, _LONGEST_TOKEN * max_tokens)


class Measure:
    """Counts the tokens of stretches of text after the `lead` that every part needs."""

    def __init__(self, count_tokens: Callable[[str], int], max_tokens: int, lead: str = "") -> None:
        self.max_tokens = max_tokens
        self._lead, self._count_tokens = lead, count_tokens
        self._longest = longest_text(max_tokens)
        self._around = count_tokens(lead)  # tokens that every part has, whatever its text
        self.room = min(max_tokens, max(max_tokens // _PIECES_OF_A_LIMIT, _SMALL_LIMIT)) - self._around
        self._since_pause = 0

    def fits(self, piece: str) -> bool:
        """Whether a piece is within the model's limit."""
        self._since_pause += _PER_CALL
        if len(piece) > self._longest:
            return False
        if len(piece) <= self.room - 1 and self._is_surely_short(piece):
            return True
        return self._measured(piece) <= self.max_tokens

    def tokens(self, piece: str) -> int:
        """Tokens of the piece itself; a number above the limit when it is far too long."""
        if len(piece) > self._longest:
            return self.room + 1
        return self._measured(piece) - self._around

    def note_part(self, characters: int) -> None:
        """A part is created, which takes as long as tokenising some of so many characters; a tag counts as one."""
        self._since_pause += characters + _PER_CALL

    def is_pause_due(self) -> bool:
        """Whether much has been tokenised since this last returned true."""
        if self._since_pause < _CHARACTERS_BETWEEN_PAUSES:
            return False
        self._since_pause = 0
        return True

    def _is_surely_short(self, piece: str) -> bool:
        """A token is at least a byte, once characters are as tokenizers make them; one more marks the first word."""
        return len(piece.encode()) + 1 <= self.room and unicodedata.is_normalized("NFKC", piece)

    def _measured(self, piece: str) -> int:
        self._since_pause += len(self._lead) + len(piece) + _PER_CALL
        return self._count_tokens(self._lead + piece)


def pieces(
    measure: Measure, text: str, span: _Span, language: str | None = None, *, is_sentence: bool = True
) -> Iterator[_Span | None]:
    """Split a span of `text` at the strongest marks possible; neighbours stay together where they fit. None is a pause."""
    yield from _Pieces(measure, text, language).split(*span, 1 if is_sentence else 0)


class _Pieces:
    """One text that is being split."""

    def __init__(self, measure: Measure, text: str, language: str | None) -> None:
        self._measure, self._text, self._language = measure, text, language

    def split(self, start: int, end: int, level: int) -> Iterator[_Span | None]:
        measure, text = self._measure, self._text
        if level == len(_WEAKER_AND_WEAKER):
            if not measure.fits(text[start:end]):
                raise InvalidRequest(
                    f"a word of {end - start} characters is more than the {measure.max_tokens} tokens that the model takes"
                )
            yield start, end
            return
        together: list[_Span] = []
        tokens = 0
        for span in self._spans(start, end, _WEAKER_AND_WEAKER[level]):
            if span is None or measure.is_pause_due():
                yield None
            if span is None:
                continue
            # With the white space before it, if it goes on: some tokenizers count that, too.
            more = measure.tokens(text[together[-1][1] if together else span[0] : span[1]])
            if together and tokens + more > measure.room:
                yield from self._fitting(together)
                together, tokens, more = [], 0, measure.tokens(text[slice(*span)])
            if more > measure.room:
                yield from self.split(*span, level + 1)
            else:
                together.append(span)
                tokens += more
        yield from self._fitting(together)

    def _spans(self, start: int, end: int, marks: str) -> Iterator[_Span | None]:
        if marks != _SENTENCES:
            yield from weak_spans(self._text, start, end, marks)
        else:
            yield from sentence_spans(self._text, self._language, start, end)

    def _fitting(self, together: Sequence[_Span]) -> Iterator[_Span]:
        """These as one piece; as two if together they have more tokens than separately, which is rare."""
        if not together:
            return
        if len(together) == 1 or self._measure.fits(self._text[together[0][0] : together[-1][1]]):
            yield together[0][0], together[-1][1]
            return
        middle = len(together) // 2
        yield from self._fitting(together[:middle])
        yield from self._fitting(together[middle:])
