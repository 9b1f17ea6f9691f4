"""Alternatives: the tokens that the model finds most probable at a position of a translation.

A position is a character of the whole translation. The token that it belongs to was chosen after all tokens before it; the
most probable tokens after the same beginning are its alternatives, and usually it is one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dragoman.bundle.spans import Span
from dragoman.serving.text.joining import JoinedPart
from dragoman.serving.text.places import Run, span_of

__all__ = ["AlternativeToken", "Alternatives", "AskedPlaces", "ReadTarget", "token_texts"]

_WINDOW, _MARGIN = 64, 8
"""Tokens whose texts are found together, and those beside them that may be parts of the same characters: decoders that can't
tell which token wrote what are asked once for each token, which takes the square of what they are asked about."""


class _Decodes(Protocol):
    """The part of a tokenizer that is needed here."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def target_spans(self, ids: Sequence[int]) -> Sequence[Span]: ...


class ReadTarget(NamedTuple):
    """A part's translation after forced decoding: for each token its log-probability and the best ones at its position.

    `runs`: where its characters stand in the joined text, as far as they are there.
    """

    tokens: tuple[int, ...]
    runs: Sequence[Run]
    log_probs: Sequence[float]
    best_tokens: Sequence[Sequence[int]]
    best_log_probs: Sequence[Sequence[float]]


class AlternativeToken(NamedTuple):
    """The text of a token, with the space before it, and its log-probability."""

    token: int
    text: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Alternatives for the token translation[start:end]. `prefix`: the tokens before it in its sentence, which is
    text[slice(*source)].
    """

    start: int
    end: int
    text: str
    log_probability: float
    prefix: tuple[int, ...]
    source: Span
    tokens: tuple[AlternativeToken, ...]


class AskedPlaces:
    """The positions in one text whose alternatives were requested. They are looked up while parts are joined, so nothing is
    kept.
    """

    def __init__(self, places: Sequence[int], tokenizer: _Decodes) -> None:
        self._places, self._tokenizer = places, tokenizer
        self._open = set(places)
        self._found: dict[int, Alternatives] = {}
        self._end: Alternatives | None = None  # of the part that was joined last

    @property
    def are_open(self) -> bool:
        """Whether positions may lie in parts that are not joined yet."""
        return bool(self._open)

    def look(self, part: JoinedPart | None, source: Span, target: ReadTarget | None) -> None:
        """Look up positions in the next part, whose source is at `source`. Without `target` nothing is known of its tokens;
        a part without a place in the joined text contains no position."""
        self._end = None
        if part is None:
            return
        here = sorted(place for place in self._open if place < part.start + part.length)
        self._open.difference_update(here)
        if target is None or not self._places:
            return
        texts = token_texts(self._tokenizer, target.tokens)
        spans = list(_spans(texts, target.runs, part))
        for at, span in enumerate(spans):
            if own := [place for place in here if span[0] <= place < span[1]]:
                self._found.update(dict.fromkeys(own, self._alternatives(at, span, texts[at], source, target)))
        if self._open and len(spans) == len(texts):  # a position beyond the text stands for its end
            self._end = self._alternatives(len(spans) - 1, spans[-1], texts[-1], source, target)

    def answers(self) -> tuple[Alternatives | None, ...]:
        """The alternatives at each position, once all parts are joined; None where no token stands."""
        return tuple(self._found.get(place, self._end if place in self._open else None) for place in self._places)

    def _alternatives(self, at: int, span: Span, text: str, source: Span, target: ReadTarget) -> Alternatives:
        tokens = target.tokens
        found = zip(target.best_tokens[at], target.best_log_probs[at], strict=True)
        return Alternatives(
            *span,
            text=text,
            log_probability=float(target.log_probs[at]),
            prefix=tokens[:at],
            source=source,
            tokens=tuple(
                AlternativeToken(int(token), self._text_behind(tokens[:at], int(token)), float(log_probability))
                for token, log_probability in found
            ),
        )

    def _text_behind(self, before: Sequence[int], token: int) -> str:
        window = (*before[-_MARGIN:], token)
        begin, end = self._tokenizer.target_spans(window)[-1]
        return self._tokenizer.decode(window)[begin:end]


def _spans(texts: Sequence[str], runs: Sequence[Run], part: JoinedPart) -> Iterator[Span]:
    """Where the tokens stand, up to the first that something else stands in the place of."""
    known = runs[-1].at + runs[-1].length if runs else 0
    begin = place = 0
    for text in texts:
        end = begin + len(text)
        if end > known:
            return
        found = span_of(runs, begin, end) or (place, place)
        begin, place = end, found[1]
        yield part.place(found[0]), part.place(found[1])


def token_texts(tokenizer: _Decodes, tokens: Sequence[int]) -> list[str]:
    """The text of each token, with the space before it; joined they are the text. Special tokens have no text, and if tokens
    share a character the last one has it.
    """
    texts: list[str] = []
    for begin in range(0, len(tokens), _WINDOW):
        start, end = max(begin - _MARGIN, 0), min(begin + _WINDOW + _MARGIN, len(tokens))
        window = tokens[start:end]
        written, spans = tokenizer.decode(window), tokenizer.target_spans(window)
        following: Span | None = None  # the next that is not empty: a special token may stand between two that share one
        own: list[str] = []
        for span in reversed(spans):
            own.append("" if span == following else written[slice(*span)])
            following = span if span[0] < span[1] else following
        texts += own[::-1][begin - start : min(begin + _WINDOW, len(tokens)) - start]
    return texts
