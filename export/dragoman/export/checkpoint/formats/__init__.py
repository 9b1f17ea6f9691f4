"""One module for each way of storing a trained model. The first format that recognises a path opens it."""

from __future__ import annotations

from pathlib import Path

from dragoman.errors import CheckpointError, UsageError
from dragoman.export.checkpoint.formats.ctranslate2 import ArgosFormat, CTranslate2Format
from dragoman.export.checkpoint.formats.fairseq import FairseqFormat
from dragoman.export.checkpoint.formats.hugging_face import HuggingFaceFormat
from dragoman.export.checkpoint.formats.marian import MarianFormat
from dragoman.export.checkpoint.formats.opennmt import OpenNMTFormat
from dragoman.export.checkpoint.formats.own import OwnFormat
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource, Reference, SourceFormat
from dragoman.export.checkpoint.formats.torch_transformer import TorchTransformerFormat
from dragoman.export.checkpoint.limits import TokenLimits

__all__ = ["FORMATS", "CompanionFiles", "OpenedSource", "Reference", "SourceFormat", "format_of", "open_source"]

FORMATS: tuple[SourceFormat, ...] = (
    CTranslate2Format(),
    ArgosFormat(),
    OwnFormat(),
    TorchTransformerFormat(),
    FairseqFormat(),
    OpenNMTFormat(),
    MarianFormat(),
    HuggingFaceFormat(),
)
"""In the order in which they are asked: those with a signature first, Hugging Face's, a mere config.json, last."""


def format_of(source: Path, name: str | None = None) -> SourceFormat:
    """The format of `source`, or the one that is named."""
    if name is not None:
        named = next((one for one in FORMATS if one.name == name), None)
        if named is None:
            raise UsageError(f"--format {name} is not known; there are {', '.join(one.name for one in FORMATS)}")
        return named
    if not source.exists():
        raise CheckpointError(f"{source} is not a checkpoint: no such directory or file")
    if (found := _recognised(source)) is not None:
        return found
    looked = "".join(f"\n  {one.name}: {one.looks_for}" for one in FORMATS)
    raise CheckpointError(f"{source} has no format that dragoman knows; name it with --format. What was looked for:{looked}")


def open_source(source: Path, limits: TokenLimits, companions: CompanionFiles, name: str | None = None) -> OpenedSource:
    """The model in `source`; where `name` is wrong, the error says what it is instead."""
    chosen = format_of(source, name)
    try:
        return chosen.open(source, limits, companions)
    except CheckpointError as error:
        other = None if name is None or not source.exists() else _recognised(source)
        if other is None or other is chosen or chosen.recognises(source):
            raise
        raise CheckpointError(f"{error} (it looks like --format {other.name})") from error


def _recognised(source: Path) -> SourceFormat | None:
    return next((one for one in FORMATS if one.recognises(source)), None)
