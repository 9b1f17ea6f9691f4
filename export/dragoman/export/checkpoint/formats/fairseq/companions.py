"""The files that a fairseq checkpoint needs but does not contain: dictionaries, and the merges or model of its subwords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.fairseq.settings import FairseqSettings
from dragoman.export.checkpoint.formats.protocol import CompanionFiles
from dragoman.export.checkpoint.formats.vocabularies import read_lines

__all__ = ["Dictionary", "find_codes", "find_dictionaries", "find_sentencepiece", "searched_directories"]

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
OVERWRITE = "#fairseq:overwrite"
CODES = ("bpe.code*", "bpecodes*", "code", "codes", "code.*", "codes.*", "*.codes", "*.bpe", "bpe.*.codes", "bpe")
SENTENCEPIECE = ("*.model", "*.spm")


@dataclass(frozen=True, slots=True)
class Dictionary:
    """dict.X.txt: four special tokens that it does not list, then its own."""

    language: str
    ids: dict[str, int]

    @property
    def size(self) -> int:
        """Rows of the embedding."""
        return max(self.ids.values()) + 1


def read_dictionary(path: Path) -> Dictionary:
    """`token count` on every line, ids in their order."""
    ids = {special: at for at, special in enumerate(SPECIALS)}
    at = len(SPECIALS)
    for number, line in enumerate(read_lines(path), start=1):
        token, _, count = line.rstrip("\r\n").removesuffix(OVERWRITE).rstrip(" ").rpartition(" ")
        if not token or not count.isdigit():
            raise CheckpointError(f"{path.name} is not a fairseq dictionary: line {number} must be a token and its count")
        if token in ids and token not in SPECIALS:
            raise CheckpointError(f"{path.name} has the token {ascii(token)[:60]} twice (line {number})")
        ids[token] = at
        at += 1
    return Dictionary(path.name.removeprefix("dict.").removesuffix(".txt"), ids)


def searched_directories(checkpoint: Path, settings: FairseqSettings) -> list[Path]:
    """Beside the checkpoint and above it, and in data/, data-bin/ and the training's own directory of these."""
    parents = [checkpoint.parent, checkpoint.parent.parent]
    last = PurePosixPath(settings.data.split(":")[0]).name if settings.data else ""
    names = ["", "data", "data-bin", *([f"data-bin/{last}", last] if last not in ("", "..") else [])]
    found = [parent / name for parent in parents for name in names]
    return list(dict.fromkeys(directory for directory in found if directory.is_dir()))


def find_dictionaries(
    directories: Iterable[Path], companions: CompanionFiles, settings: FairseqSettings, rows: tuple[int, int]
) -> tuple[Dictionary, Dictionary]:
    """Source and target: by the training's languages, or by the rows of the embeddings."""
    searched = [companions.dictionaries] if companions.dictionaries is not None else list(directories)
    paths = next((found for directory in searched if (found := sorted(directory.glob("dict.*.txt")))), [])
    if not paths:
        listed = ", ".join(map(str, searched))
        raise CheckpointError(
            f"the dictionaries dict.*.txt are missing; looked in {listed}. Name their directory: --dictionaries"
        )
    known = {dictionary.language: dictionary for dictionary in map(read_dictionary, paths)}
    return _chosen(known, settings, rows)


def _chosen(known: dict[str, Dictionary], settings: FairseqSettings, rows: tuple[int, int]) -> tuple[Dictionary, Dictionary]:
    """The one pair that the languages name, or the one whose sizes fit."""
    named = re.search(r"[.\-_/]([^.\-_/]+)-([^.\-_/]+)/?$", f"-{settings.data}")
    languages = settings.languages if all(settings.languages) else (named[1], named[2]) if named else (None, None)
    if len(known) == 1:
        languages = (next(iter(known)),) * 2
    if all(language in known for language in languages):
        source, target = (known[language] for language in languages if language is not None)
    else:
        fitting = [(one, two) for one in known.values() for two in known.values() if (one.size, two.size) == rows]
        fitting = [pair for pair in fitting if pair[0] is not pair[1]] or fitting
        if len(fitting) != 1:
            raise CheckpointError(
                f"which of dict.{', dict.'.join(sorted(known))} is the source's and which the target's can't be told: the "
                f"checkpoint names no languages, and {len(fitting)} pairs have its {rows[0]} and {rows[1]} rows; "
                "give --dictionaries a directory with these two only"
            )
        source, target = fitting[0]
    for dictionary, count in ((source, rows[0]), (target, rows[1])):
        if dictionary.size != count:
            raise CheckpointError(
                f"vocabulary and embedding disagree: dict.{dictionary.language}.txt has {dictionary.size} tokens with the "
                f"special ones, the embedding has {count} rows; take both from the same training"
            )
    return source, target


def find_codes(directories: Iterable[Path], companions: CompanionFiles, settings: FairseqSettings) -> Path | None:
    """The merges of subword-nmt."""
    if companions.bpe_codes is not None:
        return _named(companions.bpe_codes, "--bpe-codes")
    return _first(directories, settings.bpe.get("bpe_codes") or settings.model.raw("bpe_codes"), CODES)


def find_sentencepiece(
    directories: Iterable[Path], companions: CompanionFiles, settings: FairseqSettings
) -> tuple[Path, ...]:
    """One model for both sides, or two."""
    if companions.sentencepiece:
        return tuple(_named(path, "--spm") for path in companions.sentencepiece)
    named = settings.bpe.get("sentencepiece_model") or settings.model.raw("sentencepiece_model")
    found = _first(directories, named, SENTENCEPIECE)
    return () if found is None else (found,)


def _named(path: Path, option: str) -> Path:
    if not path.is_file():
        raise CheckpointError(f"{option} {path} is not there")
    return path


def _first(directories: Iterable[Path], named: object, patterns: tuple[str, ...]) -> Path | None:
    """The file that the settings name, wherever it lies now, or the first that looks like one."""
    name = PurePosixPath(named).name if isinstance(named, str) else ""
    return next(_matching(list(directories), ((name,) if name else ()) + patterns), None)


def _matching(directories: list[Path], patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        for directory in directories:
            if any(character in pattern for character in "*?["):
                yield from sorted(path for path in directory.glob(pattern) if path.is_file())
            elif (directory / pattern).is_file():
                yield directory / pattern
