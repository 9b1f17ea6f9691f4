"""ByT5: the tokens are the bytes of the text."""

from __future__ import annotations

from dragoman.bundle.manifest import TokenizerFiles
from dragoman.bundle.spans import Span, spans_of_bytes
from dragoman.bundle.tokenizer_base import BaseTokenizer

__all__ = ["ByteTokenizer"]

OFFSET = 3


class ByteTokenizer(BaseTokenizer):
    """id = byte + 3, after padding, end and unknown."""

    def __init__(self, files: TokenizerFiles) -> None:
        super().__init__(files)

    def reads(self, text: str) -> bool:  # noqa: ARG002 - it has all bytes
        return True

    @property
    def unknown_of_sources(self) -> int | None:
        return None

    def source_ids(self, text: str) -> list[int]:
        return [byte + OFFSET for byte in text.encode("utf-8", errors="surrogatepass")]

    def piece_spans(self, text: str) -> list[Span]:
        return spans_of_bytes(text)

    def text_of(self, ids: list[int]) -> str:
        """What is not UTF-8 is dropped, as Hugging Face drops it."""
        return bytes(index - OFFSET for index in ids if OFFSET <= index < OFFSET + 256).decode("utf-8", errors="ignore")
