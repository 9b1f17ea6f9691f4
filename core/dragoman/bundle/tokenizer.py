"""Text to token ids and back, by the bundle's tokenizer files.

A text is only text: `</s>`, `<pad>` or the name of a language in it never becomes a special token. Hugging Face's tokenizers
make it one; here we differ on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.spans import Span
from dragoman.errors import BundleError

__all__ = ["Tokenizer", "literal_tokens_of", "open_tokenizer"]


class Tokenizer(Protocol):
    """What the engine and the verification need of a tokenizer; safe to call from several threads."""

    def encode(self, text: str, prefix: Sequence[int] | None = None, suffix: Sequence[int] | None = None) -> list[int]:
        """Source ids with the tokens around them: the bundle's own, or others, where the request names languages."""

    def encode_target(self, text: str) -> list[int]:
        """Target ids without start and end tokens: a forced prefix."""

    def decode(self, ids: Sequence[int]) -> str:
        """Target ids to text; special tokens leave no trace."""

    def reads(self, text: str) -> bool:
        """Whether any letter of a text belongs to a source piece that the vocabulary has."""

    def source_spans(
        self, text: str, prefix: Sequence[int] | None = None, suffix: Sequence[int] | None = None
    ) -> list[Span]:
        """For each id of `encode`, the span of its characters in `text`; empty for the tokens around the source."""

    def target_spans(self, ids: Sequence[int]) -> list[Span]:
        """For each id, the span of its characters in `decode(ids)`; empty for special tokens."""


def literal_tokens_of(tokenizer: Tokenizer) -> Mapping[str, int] | None:
    """Language tokens that a text may begin with, such as Marian's `>>deu<<`; None where there are none."""
    from dragoman.bundle.tokenizer_pieces import MarianTokenizer

    return tokenizer.language_tokens if isinstance(tokenizer, MarianTokenizer) else None


def open_tokenizer(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    """The tokenizer that `files` describes, with its files in `directory`."""
    openers: dict[str, Callable[[Path, TokenizerFiles, SpecialTokens], Tokenizer]] = {
        "marian": _marian,
        "m2m100": _m2m100,
        "sentencepiece": _sentencepiece,
        "tokenizers": _tokenizers,
        "bytes": _bytes,
        "vocabulary": _words,
        "subword_nmt": _subwords,
    }
    if files.kind not in openers:
        raise BundleError(f"tokenizer kind {files.kind!r} is not known to this dragoman (known: {', '.join(openers)})")
    return openers[files.kind](directory, files, tokens)


def _marian(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    from dragoman.bundle.tokenizer_pieces import MarianTokenizer

    return MarianTokenizer(directory, files, tokens)


def _m2m100(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    from dragoman.bundle.tokenizer_pieces import PiecesTokenizer

    return PiecesTokenizer(directory, files, tokens)


def _sentencepiece(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    from dragoman.bundle.tokenizer_sentencepiece import SentencePieceTokenizer

    return SentencePieceTokenizer(directory, files, tokens)


def _tokenizers(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    from dragoman.bundle.tokenizer_json import JsonTokenizer

    return JsonTokenizer(directory, files, tokens)


def _bytes(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:  # noqa: ARG001 - it has no files
    from dragoman.bundle.tokenizer_bytes import ByteTokenizer

    return ByteTokenizer(files)


def _words(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    from dragoman.bundle.tokenizer_vocabulary import VocabularyTokenizer

    return VocabularyTokenizer(directory, files, tokens)


def _subwords(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    from dragoman.bundle.tokenizer_vocabulary import SubwordTokenizer

    return SubwordTokenizer(directory, files, tokens)
