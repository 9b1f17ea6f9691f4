"""Prepares a `tokenizer.json` for a server: the same pieces, but nothing in a user's text can become a special token.

The file's own rules recognise `</s>`, `<pad>` or `eng_Latn` anywhere in a text, and its post-processor adds the tokens of
one fixed language. Both are removed; the bundle defines what is added around a text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_json

__all__ = ["AddedTokens", "prepare_tokenizer_json", "tokenizer_json_of_bpe"]

BYTE_PIECES = {f"<0x{byte:02X}>" for byte in range(256)}
BART_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """The special tokens of the file.

    `size`: one more than the largest id; `text_size`: one more than the largest id that a text can have. `ids`: the added
    tokens. `special`: those without text. `matched`: pieces of the vocabulary that name a language.
    """

    size: int
    ids: dict[str, int]
    special: tuple[int, ...]
    unknown: int | None
    matched: dict[str, int] = field(default_factory=dict)
    is_byte_level: bool = False
    text_size: int = 0


def prepare_tokenizer_json(path: Path, languages: re.Pattern[str] | None = None) -> tuple[str, AddedTokens]:
    """The text of the bundle's file, and the special tokens that are no longer in it."""
    raw = read_json(path)
    model = raw.get("model")
    if not isinstance(model, dict) or model.get("type") not in ("Unigram", "BPE"):
        raise CheckpointError(f"{path} is not a Unigram or BPE tokenizer, the only ones that these models have")
    try:
        added = {token["content"]: int(token["id"]) for token in raw.get("added_tokens") or []}
        special = {int(token["id"]) for token in raw.get("added_tokens") or [] if token.get("special")}
        pieces, unknown = _pieces(model)
    except (TypeError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is not a tokenizer: {error!r}") from error
    matched = {piece: at for piece, at in pieces.items() if languages is not None and languages.fullmatch(piece)}
    unknown = added.get("<unk>") if unknown is None else unknown
    special |= {unknown} if unknown is not None else set()
    size = max([*pieces.values(), *added.values()], default=-1) + 1
    text_size = max((at for at in pieces.values() if at not in special), default=-1) + 1
    _hide(model, special | set(matched.values()))
    _spell_in_bytes(raw, pieces)
    raw.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
    found = AddedTokens(size, added, tuple(sorted(special)), unknown, matched, _is_byte_level(raw), text_size)
    return json.dumps(raw, ensure_ascii=False), found


def tokenizer_json_of_bpe(vocabulary: Path, merges: Path) -> tuple[str, AddedTokens]:
    """BART's older files, which name pieces and merges only."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = read_json(vocabulary)
    if not all(isinstance(index, int) for index in ids.values()):
        raise CheckpointError(f"{vocabulary} is not a vocabulary: it must map pieces to ids")
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
        pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        tokenizer = Tokenizer(models.BPE(ids, pairs))  # type: ignore[arg-type]
    except Exception as error:  # the library raises bare exceptions
        raise CheckpointError(f"{merges} are not the merges of {vocabulary.name}: {error}") from error
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {piece: ids[piece] for piece in BART_SPECIAL if piece in ids}
    size = max(ids.values(), default=-1) + 1
    text_size = max((at for piece, at in ids.items() if piece not in special), default=-1) + 1
    return tokenizer.to_str(), AddedTokens(
        size, special, tuple(sorted(special.values())), ids.get("<unk>"), is_byte_level=True, text_size=text_size
    )


def _is_byte_level(raw: dict[str, Any]) -> bool:
    return '"ByteLevel"' in json.dumps(raw.get("pre_tokenizer"))


def _pieces(model: dict[str, Any]) -> tuple[dict[str, int], int | None]:
    if model["type"] == "Unigram":
        return {str(piece): at for at, (piece, _) in enumerate(model["vocab"])}, model.get("unk_id")
    pieces = {str(piece): int(at) for piece, at in model["vocab"].items()}
    return pieces, pieces.get(model.get("unk_token") or "")


def _spell_in_bytes(raw: dict[str, Any], pieces: dict[str, int]) -> None:
    """What sentencepiece does with pieces for bytes: the unknown is spelt with them. Not every file says so."""
    if raw["model"]["type"] != "Unigram" or BYTE_PIECES - pieces.keys():
        return
    raw["model"]["byte_fallback"] = True
    if '"ByteFallback"' not in json.dumps(raw.get("decoder")):
        decoders = [{"type": "ByteFallback"}, *([raw["decoder"]] if raw.get("decoder") else [])]
        raw["decoder"] = {"type": "Sequence", "decoders": decoders}


def _hide(model: dict[str, Any], special: set[int]) -> None:
    """Special pieces of a Unigram vocabulary would match in a text as any other piece does.

    A piece with a space in it never does: Metaspace has replaced all spaces by then. BPE reaches a piece only by merges.
    """
    if model["type"] == "Unigram":
        model["vocab"] = [
            [f" {at} ", score] if at in special and at != model.get("unk_id") else [piece, score]
            for at, (piece, score) in enumerate(model["vocab"])
        ]
