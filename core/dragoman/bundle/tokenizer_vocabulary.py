"""Tokens looked up in a list: the characters of a text, its words, or the pieces that subword-nmt cuts words into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.spans import Span, spans_of_pieces
from dragoman.bundle.subword_nmt import SubwordCodes
from dragoman.bundle.tokenizer_base import BaseTokenizer, read_vocabulary, tokenizer_file
from dragoman.errors import BundleError

__all__ = ["SubwordTokenizer", "VocabularyTokenizer"]

CACHED_WORDS, CACHED_LENGTH = 1 << 14, 32
MARK = "@@"


class VocabularyTokenizer(BaseTokenizer):
    """`unit` of the settings is "character" or "word": words are what stands between spaces."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        super().__init__(files)
        self._unit = files.settings.get("unit", "word")
        if self._unit not in ("character", "word"):
            raise BundleError(f"the tokenizer's unit {self._unit!r} must be character or word")
        self._case = files.settings.get("case", "kept")
        if self._case not in ("kept", "lower"):
            raise BundleError(f"the tokenizer's case {self._case!r} must be kept or lower")
        self._source_ids = self._target_ids = read_vocabulary(tokenizer_file(directory, files, "source_vocabulary"))
        if "target_vocabulary" in files.files:
            self._target_ids = read_vocabulary(tokenizer_file(directory, files, "target_vocabulary"))
        self._unknown = tokens.unknown
        self._pieces = {index: piece for piece, index in self._target_ids.items()}

    def source_ids(self, text: str) -> list[int]:
        return self._ids(self.source_pieces(text), self._source_ids)

    def encode_target(self, text: str) -> list[int]:
        return self._ids(self.target_pieces(text), self._target_ids)

    def source_pieces(self, text: str) -> Sequence[str]:
        """What a source is made of."""
        text = text.lower() if self._case == "lower" else text
        return text if self._unit == "character" else text.split()

    def target_pieces(self, text: str) -> Sequence[str]:
        """What a target is made of."""
        return text if self._unit == "character" else text.split()

    def piece_spans(self, text: str) -> list[Span]:
        """Lower case may be longer, a character at a time."""
        lower = self._case == "lower"
        places = [at for at, one in enumerate(text) for _ in range(len(one.lower()) if lower else 1)]
        pieces = [self._bare(piece) for piece in self.source_pieces(text)]
        spans = spans_of_pieces(text.lower() if lower else text, pieces)
        known = [(places[begin], places[end - 1] + 1) for begin, end in spans]
        if self._unknown is not None:
            return known
        ids = [self._source_ids.get(piece, -1) for piece in self.source_pieces(text)]
        return [span for span, index in zip(known, ids, strict=True) if index >= 0 and index not in self._silent]

    def _bare(self, piece: str) -> str:
        """A piece as it stands in the text."""
        return piece

    def text_of(self, ids: list[int]) -> str:
        pieces = (self._pieces.get(index, "") for index in ids)
        return "".join(pieces) if self._unit == "character" else " ".join(filter(None, pieces))

    def _ids(self, pieces: Sequence[str], vocabulary: dict[str, int]) -> list[int]:
        """A piece that spells a special token is text; what the vocabulary does not have is unknown, or nothing."""
        unknown = -1 if self._unknown is None else self._unknown
        ids = (vocabulary.get(piece, unknown) for piece in pieces)
        return [kept for index in ids if (kept := unknown if index in self._silent else index) >= 0]


class SubwordTokenizer(VocabularyTokenizer):
    """`mark` ends every piece but a word's last (`@@`)."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        super().__init__(directory, files, tokens)
        self._mark = files.settings.get("mark", MARK)
        source = _open_codes(tokenizer_file(directory, files, "source_codes"))
        target = source
        if "target_codes" in files.files:
            target = _open_codes(tokenizer_file(directory, files, "target_codes"))
        self._source_words, self._target_words = _Words(source, self._mark), _Words(target, self._mark)

    def source_pieces(self, text: str) -> Sequence[str]:
        words = (text.lower() if self._case == "lower" else text).split()
        return list(self._source_words.pieces(words))

    def _bare(self, piece: str) -> str:
        return piece.removesuffix(self._mark)

    def target_pieces(self, text: str) -> Sequence[str]:
        return list(self._target_words.pieces(text.split()))

    def text_of(self, ids: list[int]) -> str:
        pieces = " ".join(self._pieces.get(index, "") for index in ids)
        return f"{pieces} ".replace(f"{self._mark} ", "").rstrip()


class _Words:
    """Words to pieces. Short ones are remembered: a text has few different words."""

    def __init__(self, codes: SubwordCodes, mark: str) -> None:
        self._codes, self._mark = codes, mark
        self._remembered = lru_cache(CACHED_WORDS)(self._marked)

    def pieces(self, words: Sequence[str]) -> Iterator[str]:
        for word in words:
            yield from self._remembered(word) if len(word) <= CACHED_LENGTH else self._marked(word)

    def _marked(self, word: str) -> tuple[str, ...]:
        *inner, last = self._codes.pieces(word)
        return (*(piece + self._mark for piece in inner), last)


def _open_codes(path: Path) -> SubwordCodes:
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            return SubwordCodes(lines, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} is not a file of subword-nmt codes: {error}") from error
