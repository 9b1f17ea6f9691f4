"""Text to token ids and back, as the bundle's tokenizer files say (needs sentencepiece)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.errors import BundleError, InvalidRequest

__all__ = ["MarianTokenizer", "Tokenizer", "open_tokenizer"]


class Tokenizer(Protocol):
    """What the engine and the verification need of a tokenizer; safe to call from several threads."""

    def encode(self, text: str) -> list[int]:
        """Source ids with the end token."""

    def encode_target(self, text: str) -> list[int]:
        """Target ids without start and end tokens: a forced prefix."""

    def decode(self, ids: Sequence[int]) -> str:
        """Target ids to text; special tokens leave no trace."""


def open_tokenizer(directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> Tokenizer:
    """The tokenizer that `files` describes, with its files in `directory`."""
    if files.kind != "marian":
        raise BundleError(f"tokenizer kind {files.kind!r} is not known to this dragoman (known: marian)")
    return MarianTokenizer(directory, files, tokens)


class MarianTokenizer:
    """sentencepiece pieces looked up in `vocab.json`, one model a side (OPUS-MT).

    Multilingual OPUS-MT models choose the target language by a leading token such as `>>deu<<`, which is one
    vocabulary entry and never goes through sentencepiece.
    """

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        import sentencepiece

        def model(role: str) -> sentencepiece.SentencePieceProcessor:
            path = directory / files.files[role]
            try:
                return sentencepiece.SentencePieceProcessor(model_file=str(path))
            except (OSError, RuntimeError) as error:
                raise BundleError(f"{path} is not a sentencepiece model: {error}") from error

        def vocabulary(role: str) -> dict[str, int]:
            path = directory / files.files[role]
            try:
                loaded = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise BundleError(f"{path} is not a vocabulary: {error}") from error
            if not isinstance(loaded, dict) or not all(isinstance(index, int) for index in loaded.values()):
                raise BundleError(f"{path} is not a vocabulary: it must map pieces to ids")
            return loaded

        self._tokens = tokens
        self._source, self._target = model("source_model"), model("target_model")
        self._source_ids = vocabulary("source_vocabulary")
        self._target_ids = vocabulary("target_vocabulary") if "target_vocabulary" in files.files else self._source_ids
        self._unknown = tokens.unknown if tokens.unknown is not None else self._source_ids.get("<unk>", tokens.eos)
        self._pieces = {index: piece for piece, index in self._target_ids.items()}
        self._silent = {tokens.pad, tokens.eos, tokens.decoder_start, self._unknown}

    def encode(self, text: str) -> list[int]:
        language, text = self._split_language(text)
        pieces = self._source.encode(text, out_type=str)
        ids = [self._source_ids.get(piece, self._unknown) for piece in pieces]
        return [*language, *ids, self._tokens.eos]

    def encode_target(self, text: str) -> list[int]:
        return [self._target_ids.get(piece, self._unknown) for piece in self._target.encode(text, out_type=str)]

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [self._pieces.get(index, "") for index in ids if index not in self._silent]
        text: str = self._target.decode_pieces(pieces)
        return text.strip()

    @property
    def language_tokens(self) -> dict[str, int]:
        """Tokens such as `>>deu<<` and their ids; empty for a model of one pair."""
        return {piece: index for piece, index in self._source_ids.items() if piece.startswith(">>") and piece.endswith("<<")}

    def _split_language(self, text: str) -> tuple[list[int], str]:
        if not text.startswith(">>"):
            return [], text
        code, closed, rest = text.partition("<<")
        if not closed:
            return [], text
        token = self._source_ids.get(code + closed)
        if token is None:
            known = sorted(piece for piece in self._source_ids if piece.startswith(">>") and piece.endswith("<<"))
            if not known:
                return [], text
            raise InvalidRequest(f"the model has no language token {code[:20] + closed!r}; it has {', '.join(known[:12])}")
        return [token], rest.lstrip()
