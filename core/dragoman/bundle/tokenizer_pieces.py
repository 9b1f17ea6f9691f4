"""sentencepiece for the pieces, a vocabulary for their ids: Marian and M2M100."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman.bundle.manifest import SpecialTokens, TokenizerFiles
from dragoman.bundle.spans import Span
from dragoman.bundle.tokenizer_base import (
    BaseTokenizer,
    open_sentencepiece,
    read_vocabulary,
    source_unknown,
    tokenizer_file,
)
from dragoman.errors import InvalidRequest

__all__ = ["MarianTokenizer", "PiecesTokenizer"]

SPACE = "▁"


class PiecesTokenizer(BaseTokenizer):
    """One sentencepiece model and one vocabulary for both sides, or one each."""

    def __init__(self, directory: Path, files: TokenizerFiles, tokens: SpecialTokens) -> None:
        super().__init__(files)
        self._source = open_sentencepiece(tokenizer_file(directory, files, "source_model"))
        self._target = self._source
        if "target_model" in files.files:
            self._target = open_sentencepiece(tokenizer_file(directory, files, "target_model"))
        self._source_ids = self._target_ids = read_vocabulary(tokenizer_file(directory, files, "source_vocabulary"))
        if "target_vocabulary" in files.files:
            self._target_ids = read_vocabulary(tokenizer_file(directory, files, "target_vocabulary"))
        self._unknown = tokens.unknown if tokens.unknown is not None else self._source_ids.get("<unk>", tokens.eos)
        pieces = {index: piece for piece, index in self._target_ids.items()}
        self._special = frozenset({tokens.pad, tokens.eos, tokens.decoder_start, self._unknown}) | self._silent
        # by their names, because the two vocabularies may give them different ids
        self._special_pieces = frozenset(pieces[index] for index in self._special if index in pieces)
        named = self._source_ids.get(pieces.get(self._unknown, "<unk>"), self._unknown)
        source_id = source_unknown(files, named)
        self._unknown_source = named if source_id is None else source_id
        self._pieces = pieces  # of ids that have a text
        for index in self._special:
            pieces.pop(index, None)

    def source_ids(self, text: str) -> list[int]:
        return self._ids(self._source.encode(text, out_type=str), self._source_ids, self._unknown_source)

    def encode_target(self, text: str) -> list[int]:
        return self._ids(self._target.encode(text, out_type=str), self._target_ids, self._unknown)

    @property
    def unknown_of_sources(self) -> int | None:
        return self._unknown_source

    def decode(self, ids: Sequence[int]) -> str:
        piece_of = self._pieces.get
        return self._text([piece for index in ids if (piece := piece_of(index)) is not None])

    @property
    def silent(self) -> frozenset[int]:
        return self._special

    def piece_spans(self, text: str) -> list[Span]:
        offsets: list[Span] = self._source.encode(text, return_type="offset_mapping")["offsets"]
        return offsets

    def text_of(self, ids: list[int]) -> str:
        return self._text([self._pieces.get(index, "") for index in ids])

    def text_spans(self, ids: list[int]) -> list[Span]:
        """sentencepiece knows them where it writes every piece, and each adds whole characters: nearly always."""
        if not ids:
            return []
        found = self._target.decode([self._pieces.get(index, "") for index in ids], return_type="offset_mapping")
        text, spans = found["text"], [tuple(span) for span in found["offsets"]]
        ends = [0, *(end for _, end in spans)]
        adds_each = len(spans) == len(ids) and all(
            begin == ends[at] and text[begin:end].strip() for at, (begin, end) in enumerate(spans)
        )
        if adds_each and ends[-1] == len(text) and SPACE not in text and text == text.strip():
            return spans
        return super().text_spans(ids)

    def _text(self, pieces: list[str]) -> str:
        text: str = self._target.decode_pieces(pieces)
        # sentencepiece turns the mark of the pieces it knows into spaces, and leaves it in the others
        return text.replace(SPACE, " ").strip()

    def _ids(self, pieces: Sequence[str], vocabulary: dict[str, int], unknown: int) -> list[int]:
        """A piece that spells a special token is text all the same."""
        special, id_of = self._special_pieces, vocabulary.get
        if special.isdisjoint(pieces):
            return [id_of(piece, unknown) for piece in pieces]
        return [unknown if piece in special else id_of(piece, unknown) for piece in pieces]


class MarianTokenizer(PiecesTokenizer):
    """OPUS-MT. Multilingual models choose the target language by a leading token such as `>>deu<<`.

    That token is one vocabulary entry and never goes through sentencepiece.
    """

    @property
    def language_tokens(self) -> dict[str, int]:
        """Tokens such as `>>deu<<` and their ids; empty for a model of one pair."""
        return {piece: at for piece, at in self._source_ids.items() if piece.startswith(">>") and piece.endswith("<<")}

    def source_ids(self, text: str) -> list[int]:
        language, text = self._split_language(text)
        return [*language, *super().source_ids(text)]

    def piece_spans(self, text: str) -> list[Span]:
        language, rest = self._split_language(text)
        before = len(text) - len(rest)
        return [*[(0, 0)] * len(language), *((a + before, b + before) for a, b in super().piece_spans(rest))]

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
