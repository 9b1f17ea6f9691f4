"""What all tokenizers have in common: the tokens around a source, and the ids that have no text."""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.bundle.integrity import path_in_bundle
from dragoman.bundle.manifest import TokenizerFiles
from dragoman.bundle.spans import Span, joined_empty, spans_by_decoding
from dragoman.bundle.strict_json import read_json_file
from dragoman.errors import BundleError

__all__ = ["BaseTokenizer", "open_sentencepiece", "read_vocabulary", "source_unknown", "tokenizer_file"]

_LETTER = re.compile(r"[^\W\d_]")


class BaseTokenizer(abc.ABC):
    """Base of all tokenizers: subclasses map text to ids and back; this class adds and removes the ids that have no text."""

    def __init__(self, files: TokenizerFiles) -> None:
        self._prefix, self._suffix = list(files.source_prefix), list(files.source_suffix)
        self._silent = frozenset(files.silent)

    def reads(self, text: str) -> bool:
        ids, unknown = self.source_ids(text), self.unknown_of_sources
        if unknown is not None and unknown not in ids:
            return True  # some pieces are parts of a character
        return any(
            index != unknown and _LETTER.search(text, *span) for index, span in zip(ids, self.piece_spans(text), strict=True)
        )

    def encode(self, text: str, prefix: Sequence[int] | None = None, suffix: Sequence[int] | None = None) -> list[int]:
        before = self._prefix if prefix is None else prefix
        return [*before, *self.source_ids(text), *(self._suffix if suffix is None else suffix)]

    def encode_target(self, text: str) -> list[int]:
        return self.source_ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.text_of([index for index in ids if index not in self._silent])

    def source_spans(
        self, text: str, prefix: Sequence[int] | None = None, suffix: Sequence[int] | None = None
    ) -> list[Span]:
        before = self._prefix if prefix is None else prefix
        after = self._suffix if suffix is None else suffix
        return [*[(0, 0)] * len(before), *joined_empty(self.piece_spans(text)), *[(len(text), len(text))] * len(after)]

    def target_spans(self, ids: Sequence[int]) -> list[Span]:
        found = iter(self.text_spans([index for index in ids if index not in self.silent]))
        spans, end = list[Span](), 0
        for index in ids:
            begin, end = (end, end) if index in self.silent else next(found)
            spans.append((begin, end))
        return spans

    @property
    def silent(self) -> frozenset[int]:
        """Ids that have no text."""
        return self._silent

    def text_spans(self, ids: list[int]) -> list[Span]:
        """For each of the ids, all of which have a text, the span of its characters in `text_of(ids)`."""
        return spans_by_decoding(self.text_of, ids)

    @property
    @abc.abstractmethod
    def unknown_of_sources(self) -> int | None:
        """The id of source pieces that the vocabulary does not have; None if it has all, or if they are left out."""

    @abc.abstractmethod
    def piece_spans(self, text: str) -> list[Span]:
        """For each of `source_ids(text)`, the span of its characters in `text`."""

    @abc.abstractmethod
    def source_ids(self, text: str) -> list[int]:
        """The ids of a text and nothing else."""

    @abc.abstractmethod
    def text_of(self, ids: list[int]) -> str:
        """The text of ids that all have one."""


def tokenizer_file(directory: Path, files: TokenizerFiles, role: str) -> Path:
    """Where the tokenizer's file for `role` lies."""
    if role not in files.files:
        raise BundleError(f"the tokenizer {files.kind!r} needs a {role}, which the bundle does not name")
    return path_in_bundle(directory, files.files[role])


def source_unknown(files: TokenizerFiles, target_unknown: int | None) -> int | None:
    """The id of source pieces that the vocabulary does not have: that of targets, unless the settings name one or "none"."""
    setting = files.settings.get("source_unknown")
    if setting is None:
        return target_unknown
    if setting != "none" and not (setting.isascii() and setting.isdigit() and len(setting) < 9):
        raise BundleError(f"the tokenizer's source_unknown {setting[:20]!r} must be an id or none")
    return None if setting == "none" else int(setting)


def open_sentencepiece(path: Path) -> Any:  # noqa: ANN401 - sentencepiece has no types
    """The sentencepiece model in `path`."""
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise BundleError(f"{path} is not a sentencepiece model: {error}") from error


def read_vocabulary(path: Path) -> dict[str, int]:
    """Pieces and their ids, a JSON object."""
    try:
        loaded = read_json_file(path)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} is not a vocabulary: {error}") from error
    if not isinstance(loaded, dict) or not all(type(index) is int for index in loaded.values()):
        raise BundleError(f"{path} is not a vocabulary: it must map pieces to ids")
    return loaded
