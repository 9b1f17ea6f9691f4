"""Whether texts went through Moses's tokenizer before the subwords: the user, the settings or the pieces say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dragoman.bundle.moses import HYPHEN, LANGUAGE, moses_settings
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.settings import shown

__all__ = ["MARKS", "NO_MOSES", "moses_of"]

MARKS = ("&apos;", "&quot;")
"""Pieces that begin so come from Moses: no other tokenizer writes quotes like this."""
NO_MOSES = "none"

Languages = tuple[str | None, str | None]


def moses_of(
    requested: str | None,
    pieces: Collection[str],
    file: str,
    *,
    languages: Languages = (None, None),
    settings: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """What the bundle's tokenizer needs to know; nothing if texts were not tokenised.

    `requested` is --moses: two languages, or none. `settings` are fairseq's of its tokenizer, where the checkpoint has them.
    """
    known = settings or {}
    splits, escaped = HYPHEN in pieces, any(piece.startswith(MARKS) for piece in pieces)
    if requested == NO_MOSES or not (requested or known or splits or escaped):
        return {}
    if requested is not None:
        source, _, target = requested.partition("-")
    else:
        sides = zip(("source_lang", "target_lang"), languages, strict=True)
        source, target = (str(known.get(name) or own or "") for name, own in sides)
    if not LANGUAGE.fullmatch(source) or not LANGUAGE.fullmatch(target):
        if requested is not None:
            raise CheckpointError(f"--moses must be two language codes such as en-de, or {NO_MOSES}, not {shown(requested)}")
        raise CheckpointError(
            f"the texts of {file} went through the tokenizer of Moses (there are pieces such as {HYPHEN} and {MARKS[0]}), "
            "and their languages are not known: name them (--moses en-de), or say that requests come tokenised "
            f"(--moses {NO_MOSES})"
        )
    if known:
        splits, escaped = not known.get("moses_no_dash_splits", False), not known.get("moses_no_escape", False)
    return moses_settings(source, target, split_hyphens=splits, escape=escaped)
