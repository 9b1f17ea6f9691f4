"""A `tokenizer.json`, run by the `tokenizers` library. The export has taken the special tokens out of its rules."""

from __future__ import annotations

from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.spans import Span
from dragoman.bundle.tokenizer_base import BaseTokenizer, tokenizer_file
from dragoman.errors import BundleError

__all__ = ["JsonTokenizer"]


class JsonTokenizer(BaseTokenizer):
    """NLLB, mBART-50, T5, Pegasus and BART as most public checkpoints have them."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        import tokenizers

        super().__init__(files)
        path = tokenizer_file(directory, files, "tokenizer")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare exceptions
            raise BundleError(f"{path} is not a tokenizer: {error}") from error
        if self._tokenizer.get_added_tokens_decoder():
            raise BundleError(f"{path} has special tokens that a text could name; export the checkpoint again")
        self._unknown = tokens.unknown
        self._strips = files.settings.get("strip") == "right"

    def source_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text.rstrip() if self._strips else text, add_special_tokens=False).ids
        if self._unknown is None:
            return [index for index in ids if index not in self._silent]
        return [self._unknown if index in self._silent else index for index in ids]

    @property
    def unknown_of_sources(self) -> int | None:
        return self._unknown

    def piece_spans(self, text: str) -> list[Span]:
        encoding = self._tokenizer.encode(text.rstrip() if self._strips else text, add_special_tokens=False)
        kept = self._unknown is not None
        offsets = zip(encoding.ids, encoding.offsets, strict=True)
        return [span for index, span in offsets if kept or index not in self._silent]

    def text_of(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text
