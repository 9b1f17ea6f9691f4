"""Tokens looked up in a list: the characters of a text, its words, or the pieces that subword-nmt cuts words into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.moses import Moses, spans_of_words
from dragoman.bundle.spans import Span
from dragoman.bundle.subword_nmt import SubwordCodes
from dragoman.bundle.tokenizer_base import BaseTokenizer, read_vocabulary, source_unknown, tokenizer_file
from dragoman.errors import BundleError

__all__ = ["SubwordTokenizer", "VocabularyTokenizer"]

CACHED_WORDS, CACHED_LENGTH = 1 << 14, 32
MARK = "@@"


class VocabularyTokenizer(BaseTokenizer):
    """`unit` of the settings is "character" or "word": what stands between spaces, or what Moses's tokenizer sets apart."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        super().__init__(files)
        self._unit = files.settings.get("unit", "word")
        if self._unit not in ("character", "word"):
            raise BundleError(f"the tokenizer's unit {self._unit!r} must be character or word")
        self._case = files.settings.get("case", "kept")
        if self._case not in ("kept", "lower"):
            raise BundleError(f"the tokenizer's case {self._case!r} must be kept or lower")
        self._moses = Moses.named_in(files.settings)
        if self._moses is not None and self._unit == "character":
            raise BundleError("the tokenizer cuts texts into characters; Moses means nothing there")
        self._source_ids = self._target_ids = read_vocabulary(tokenizer_file(directory, files, "source_vocabulary"))
        if "target_vocabulary" in files.files:
            self._target_ids = read_vocabulary(tokenizer_file(directory, files, "target_vocabulary"))
        self._unknown, self._source_unknown = tokens.unknown, source_unknown(files, tokens.unknown)
        self._pieces = {index: piece for piece, index in self._target_ids.items()}

    def source_ids(self, text: str) -> list[int]:
        return [index for index in self._source_lookup(text) if index >= 0]

    def encode_target(self, text: str) -> list[int]:
        words = self._moses.target_words(text) if self._moses else self._words(text)
        pieces = (piece for word in self._target_pieces(words) for piece in word)
        return [index for index in self._ids(pieces, self._target_ids, self._unknown) if index >= 0]

    @property
    def unknown_of_sources(self) -> int | None:
        return self._source_unknown

    def piece_spans(self, text: str) -> list[Span]:
        """Lower-casing may lengthen a text, so each character of the lower-case text is mapped to its original."""
        lower = self._case == "lower"
        places = [at for at, one in enumerate(text) for _ in range(len(one.lower()) if lower else 1)] + [len(text)]
        words = [[self._bare(piece) for piece in word] for word in self._source_words(text)]
        spans = spans_of_words(text.lower() if lower else text, words, escaped=self._moses is not None)
        known = [(places[begin], places[end - 1] + 1 if end > begin else places[begin]) for begin, end in spans]
        return [span for span, index in zip(known, self._source_lookup(text), strict=True) if index >= 0]

    def text_of(self, ids: list[int]) -> str:
        pieces = (self._pieces.get(index, "") for index in ids)
        return "".join(pieces) if self._unit == "character" else self._joined(list(filter(None, pieces)))

    def text_spans(self, ids: list[int]) -> list[Span]:
        if self._moses is None:
            return super().text_spans(ids)
        words: list[list[str]] = [[]]
        for piece in (self._pieces.get(index, "") for index in ids):
            words[-1].append(self._bare(piece))
            if self._bare(piece) == piece:
                words.append([])
        return spans_of_words(self.text_of(ids), words, escaped=True)

    def _source_lookup(self, text: str) -> list[int]:
        """The id of each piece; -1 for an unknown piece if the model has no unknown token."""
        pieces = (piece for word in self._source_words(text) for piece in word)
        return self._ids(pieces, self._source_ids, self._source_unknown)

    def _source_words(self, text: str) -> Iterable[Sequence[str]]:
        """The words of a source, each as its pieces."""
        text = text.lower() if self._case == "lower" else text
        return self._source_pieces(self._moses.source_words(text) if self._moses else self._words(text))

    def _words(self, text: str) -> Sequence[str]:
        return text if self._unit == "character" else text.split()

    def _source_pieces(self, words: Sequence[str]) -> Iterable[Sequence[str]]:
        return ((word,) for word in words)

    def _target_pieces(self, words: Sequence[str]) -> Iterable[Sequence[str]]:
        return ((word,) for word in words)

    def _bare(self, piece: str) -> str:
        """A piece as it stands in the text."""
        return piece

    def _joined(self, pieces: list[str]) -> str:
        return self._moses.text_of(pieces) if self._moses else " ".join(pieces)

    def _ids(self, pieces: Iterable[str], vocabulary: dict[str, int], unknown: int | None) -> list[int]:
        """A piece that spells a special token is text, which is unknown."""
        other = -1 if unknown is None else unknown
        ids = (vocabulary.get(piece, other) for piece in pieces)
        return [other if index in self._silent else index for index in ids]


class SubwordTokenizer(VocabularyTokenizer):
    """`mark` ends every piece but a word's last (`@@`)."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        super().__init__(directory, files, tokens)
        self._mark = files.settings.get("mark", MARK)
        source = _open_codes(tokenizer_file(directory, files, "source_codes"))
        target = source
        if "target_codes" in files.files:
            target = _open_codes(tokenizer_file(directory, files, "target_codes"))
        self._source_cuts, self._target_cuts = _Words(source, self._mark), _Words(target, self._mark)

    def _source_pieces(self, words: Sequence[str]) -> Iterable[Sequence[str]]:
        return map(self._source_cuts.pieces, words)

    def _target_pieces(self, words: Sequence[str]) -> Iterable[Sequence[str]]:
        return map(self._target_cuts.pieces, words)

    def _bare(self, piece: str) -> str:
        return piece.removesuffix(self._mark)

    def _joined(self, pieces: list[str]) -> str:
        text = f"{' '.join(pieces)} ".replace(f"{self._mark} ", "").rstrip()
        goes_on = bool(pieces) and pieces[-1].endswith(self._mark)
        return self._moses.text_of(text.split(), goes_on=goes_on) if self._moses else text


class _Words:
    """Words to pieces. Short ones are remembered: a text has few different words."""

    def __init__(self, codes: SubwordCodes, mark: str) -> None:
        self._codes, self._mark = codes, mark
        self._remembered = lru_cache(CACHED_WORDS)(self._marked)

    def pieces(self, word: str) -> tuple[str, ...]:
        return self._remembered(word) if len(word) <= CACHED_LENGTH else self._marked(word)

    def _marked(self, word: str) -> tuple[str, ...]:
        *inner, last = self._codes.pieces(word)
        return (*(piece + self._mark for piece in inner), last)


def _open_codes(path: Path) -> SubwordCodes:
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            return SubwordCodes(lines, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} is not a file of subword-nmt codes: {error}") from error
