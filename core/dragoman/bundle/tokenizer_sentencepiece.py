"""A sentencepiece model whose ids are the model's own, moved by a constant: T5, Pegasus, NLLB and mBART."""

from __future__ import annotations

from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.spans import Span
from dragoman.bundle.tokenizer_base import BaseTokenizer, open_sentencepiece, tokenizer_file
from dragoman.errors import BundleError

__all__ = ["SentencePieceTokenizer"]


class SentencePieceTokenizer(BaseTokenizer):
    """id = sentencepiece's id + offset; sentencepiece itself never gives a control token for a text."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        super().__init__(files)
        self._model = open_sentencepiece(tokenizer_file(directory, files, "model"))
        try:
            self._offset = int(files.settings["offset"])
        except (KeyError, ValueError) as error:
            raise BundleError(f"the tokenizer's offset is not a whole number: {error}") from error
        self._size: int = self._model.get_piece_size()
        self._unknown = tokens.unknown if tokens.unknown is not None else self._model.unk_id() + self._offset

    def source_ids(self, text: str) -> list[int]:
        unknown = self._model.unk_id()
        moved = (self._unknown if piece == unknown else piece + self._offset for piece in self._model.encode(text))
        return [self._unknown if index in self._silent else index for index in moved]

    @property
    def unknown_of_sources(self) -> int | None:
        return self._unknown

    def piece_spans(self, text: str) -> list[Span]:
        offsets: list[Span] = self._model.encode(text, return_type="offset_mapping")["offsets"]
        return offsets

    def text_of(self, ids: list[int]) -> str:
        pieces = [index - self._offset for index in ids]
        text: str = self._model.decode([piece for piece in pieces if 0 <= piece < self._size])
        return text
