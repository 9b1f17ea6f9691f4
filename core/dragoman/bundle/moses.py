"""Moses's tokenizer around subwords: fairseq, OpenNMT-py and Marian models learn from text that it has cut into words.

Words and marks are set apart (`well @-@ known`, `isn &apos;t`) before a text is cut into subwords, and put together again in
the answer. sacremoses does both, as it does for fairseq. It is imported for bundles that name it, and for no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragoman.bundle.spans import Span
from dragoman.errors import BundleError

__all__ = ["ESCAPED", "HYPHEN", "Moses", "moses_settings", "spans_of_words"]

HYPHEN = "@-@"
ESCAPED = {
    "&apos;": "'",
    "&quot;": '"',
    "&lt;": "<",
    "&gt;": ">",
    "&#91;": "[",
    "&#93;": "]",
    "&#124;": "|",
    "&amp;": "&",
}
LANGUAGE = re.compile(r"[a-z]{2,3}")
SWITCH = ("on", "off")
SOURCE, TARGET, SPLIT_HYPHENS, ESCAPE = "moses_source", "moses_target", "moses_split_hyphens", "moses_escape"


def moses_settings(source: str, target: str, *, split_hyphens: bool, escape: bool) -> dict[str, str]:
    """The settings in a bundle: the languages, whether hyphens within words are separated, and whether marks are escaped
    (`&apos;`).
    """
    switches = {SPLIT_HYPHENS: SWITCH[not split_hyphens], ESCAPE: SWITCH[not escape]}
    return {SOURCE: source, TARGET: target, **switches}


class Moses:
    """Splits source and target texts into words, and joins target words into text."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        source, target = settings.get(SOURCE, ""), settings.get(TARGET, "")
        for language in (source, target):
            if not LANGUAGE.fullmatch(language):
                raise BundleError(f"the tokenizer's language for Moses must be a code such as en, not {language[:20]!r}")
        for name in (SPLIT_HYPHENS, ESCAPE):
            if settings.get(name) not in SWITCH:
                raise BundleError(f"the tokenizer's {name} must be on or off")
        self._splits, self._escapes = settings[SPLIT_HYPHENS] == "on", settings[ESCAPE] == "on"
        self._source, self._target = _tokenizer(source), _tokenizer(target)
        self._detokenizer = _detokenizer(target)

    @staticmethod
    def named_in(settings: Mapping[str, str]) -> Moses | None:
        """None for a bundle whose texts are not tokenised before the subwords."""
        return Moses(settings) if any(name.startswith("moses_") for name in settings) else None

    def source_words(self, text: str) -> list[str]:
        """Words and marks of a source."""
        return self._words(self._source, text)

    def target_words(self, text: str) -> list[str]:
        """Words and marks of a target."""
        return self._words(self._target, text)

    def text_of(self, words: Sequence[str], *, goes_on: bool = False) -> str:
        """The text of target words. `goes_on`: the last one is not complete, as happens in a stream.

        Whether there is a space before a mark depends on all of it, so nothing is shown of a mark that goes on.
        """
        if goes_on:
            shown = _without_unfinished(words[-1]) if self._escapes else words[-1]
            words = [*words[:-1], *([shown] if any(map(str.isalnum, _plain(shown))) else [])]
        text: str = self._detokenizer.detokenize(words, unescape=self._escapes)
        return text

    def _words(self, tokenizer: Any, text: str) -> list[str]:  # noqa: ANN401 - sacremoses has no types
        words: list[str] = tokenizer.tokenize(text, aggressive_dash_splits=self._splits, escape=self._escapes)
        return words


def _tokenizer(language: str) -> Any:  # noqa: ANN401
    """A tokenizer with precomputed sets of letters; the original builds one of all Unicode letters for every `a.b.`."""
    tokenizer = _sacremoses().MosesTokenizer(language)
    letters, small = frozenset(tokenizer.IsAlpha), frozenset(tokenizer.IsLower)
    tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokenizer.islower = small.issuperset
    return tokenizer


def _detokenizer(language: str) -> Any:  # noqa: ANN401
    # its rule for Czech's "-li" calls next() on a list, which fails: Czech is put together by the common rules
    return _sacremoses().MosesDetokenizer("" if language == "cs" else language)


def _sacremoses() -> Any:  # noqa: ANN401
    try:
        import sacremoses
    except ImportError as error:
        raise BundleError("the tokenizer needs sacremoses, which is not installed: pip install 'sacremoses>=0.2'") from error
    return sacremoses


def spans_of_words(text: str, words: Iterable[Sequence[str]], *, escaped: bool) -> list[Span]:
    """Where the pieces of each word stand in a text. `escaped`: the words are Moses's, and one with marks is found whole.

    Moses drops spaces and control characters and adds spaces, so the characters of words are there in their order.
    """
    spans, end = list[Span](), 0
    for pieces in words:
        word = "".join(pieces)
        plain = _plain(word) if escaped else word
        for piece in pieces if plain == word else [plain]:
            begin, end = _found(text, piece, end)
            spans += [(begin, end)] * (1 if plain == word else len(pieces))
    return spans


def _without_unfinished(word: str) -> str:
    """A word without the beginning of a mark at its end: a literal `&` is written `&amp;`."""
    begin = word.rfind("&")
    is_open = begin >= 0 and any(mark.startswith(word[begin:]) and mark != word[begin:] for mark in ESCAPED)
    return word[:begin] if is_open else word


def _plain(word: str) -> str:
    if word == HYPHEN:
        return "-"
    for escaped, mark in ESCAPED.items():
        word = word.replace(escaped, mark)
    return word


def _found(text: str, piece: str, start: int) -> Span:
    """The stretch from `start` on that has the piece's characters in their order; an empty one if there is none."""
    while start < len(text) and text[start].isspace():
        start += 1
    if text.startswith(piece, start):
        return start, start + len(piece)
    begin = end = start
    for number, character in enumerate(piece):
        at = text.find(character, end)
        if at < 0:
            return start, start
        begin, end = (at, at + 1) if number == 0 else (begin, at + 1)
    return begin, end
