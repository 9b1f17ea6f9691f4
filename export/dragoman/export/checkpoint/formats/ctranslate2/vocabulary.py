"""The words of a CTranslate2 model: lists of tokens, whose places are the ids, and the settings beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dragoman.bundle.strict_json import read_json_file, read_text
from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_settings
from dragoman.export.checkpoint.settings import JsonSettings

__all__ = ["Vocabularies", "read_vocabularies"]

LARGEST_FILE = 64 << 20


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """Tokens in the order of their ids, and which of them are special; `start` None: the target's language starts it."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    unknown: str
    bos: str
    eos: str
    start: str | None
    adds_bos: bool
    adds_eos: bool
    layer_norm_epsilon: float | None

    @property
    def is_shared(self) -> bool:
        """One list for both sides."""
        return self.source == self.target

    @property
    def source_ids(self) -> Mapping[str, int]:
        """Where each source token stands; of equal ones the first counts."""
        return _ids(self.source)

    @property
    def target_ids(self) -> Mapping[str, int]:
        """The same for the target."""
        return _ids(self.target)


def read_vocabularies(directory: Path, source_rows: int, target_rows: int) -> Vocabularies:
    """What lies beside model.bin; the lists must name the rows of the embeddings."""
    settings = read_settings(directory / "config.json")
    shared = _read(directory, "shared")
    source, target = (shared, shared) if shared else (_read(directory, "source"), _read(directory, "target"))
    if source is None or target is None:
        raise CheckpointError(
            f"{directory} is not a whole CTranslate2 model: shared_vocabulary.json, or source_vocabulary.json and "
            "target_vocabulary.json, are missing"
        )
    for side, words, rows in (("source", source, source_rows), ("target", target, target_rows)):
        if len(words) != rows:
            raise CheckpointError(
                f"vocabulary and embedding disagree: the {side} vocabulary has {len(words)} tokens, the embedding has "
                f"{rows} rows; take both from the same model"
            )
    return Vocabularies(
        source=source,
        target=target,
        unknown=_word(settings, "unk_token", "<unk>"),
        bos=_word(settings, "bos_token", "<s>"),
        eos=_word(settings, "eos_token", "</s>"),
        start=None
        if settings.values.get("decoder_start_token", "") is None
        else _word(settings, "decoder_start_token", "<s>"),
        adds_bos=settings.flag("add_source_bos", False),
        adds_eos=settings.flag("add_source_eos", False),
        layer_norm_epsilon=settings.real("layer_norm_epsilon", 0.0) or None,
    )


def _read(directory: Path, side: str) -> tuple[str, ...] | None:
    stem = directory / f"{side}_vocabulary"
    modern, old = stem.with_suffix(".json"), stem.with_suffix(".txt")
    try:
        if modern.is_file():
            words = read_json_file(modern)
        elif old.is_file():
            words = read_text(old, LARGEST_FILE).removesuffix("\n").split("\n")
        else:
            return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{stem.name} in {directory} can't be read: {error}") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise CheckpointError(f"{modern} is not a vocabulary: it must be a list of tokens")
    return tuple(words)


def _word(settings: JsonSettings, name: str, default: str) -> str:
    return settings.text(name, default) or default


def _ids(words: tuple[str, ...]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for at, word in enumerate(words):
        ids.setdefault(word, at)
    return ids
