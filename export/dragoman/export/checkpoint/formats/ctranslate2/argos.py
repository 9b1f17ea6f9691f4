"""Argos packages (Argos Translate, LibreTranslate): a zip or a directory with a CTranslate2 model and its tokenizer."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_settings, require_file
from dragoman.export.checkpoint.formats.ctranslate2.binary import has_signature
from dragoman.export.checkpoint.formats.ctranslate2.directory import open_model
from dragoman.export.checkpoint.formats.protocol import CompanionFiles, OpenedSource
from dragoman.export.checkpoint.formats.unpacked import Unpacked
from dragoman.export.checkpoint.formats.zips import ZIP_ERRORS
from dragoman.export.checkpoint.limits import TokenLimits
from dragoman.search.options import DecodingOptions

__all__ = ["ArgosFormat"]

METADATA, TOKENIZER = "metadata.json", "sentencepiece.model"
USUAL = DecodingOptions(beam_size=4, length_penalty=0.2, early_stopping="first", max_length=256, min_length=2)
"""What Argos Translate asks CTranslate2 for."""


class ArgosFormat:
    """Languages come from metadata.json. Sources get the tokens that the model's settings add, and no others."""

    name = "argos"
    looks_for = f"an .argosmodel file, or a directory with {METADATA} and model/model.bin"

    def recognises(self, source: Path) -> bool:
        """A zip with such files in its one folder, or that folder."""
        if source.is_dir():
            return (source / METADATA).is_file() and has_signature(source / "model" / "model.bin")
        if not zipfile.is_zipfile(source):
            return False
        try:
            with zipfile.ZipFile(source) as archive:
                names = archive.namelist()
        except ZIP_ERRORS:
            return source.suffix == ".argosmodel"
        return any(name.endswith(f"/{METADATA}") for name in names) and any(n.endswith("/model/model.bin") for n in names)

    def open(self, source: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
        if source.is_dir():
            return _open(source, limits, companions)
        unpacked = Unpacked(source)
        folders = [path.parent for path in sorted(unpacked.directory.glob(f"*/{METADATA}"))]
        if len(folders) != 1:
            raise CheckpointError(f"{source} is not an Argos package: it must have one folder with {METADATA}")
        opened = _open(folders[0], limits, companions)
        return dataclasses.replace(opened, files=unpacked)


def _open(package: Path, limits: TokenLimits, companions: CompanionFiles) -> OpenedSource:
    metadata = read_settings(require_file(package / METADATA, "the package's languages"))
    source, target = metadata.text("from_code"), metadata.text("to_code")
    if not companions.sentencepiece:
        if not (package / TOKENIZER).is_file() and (package / "bpe.model").is_file():
            raise CheckpointError(
                f"{package} cuts words with subword-nmt (bpe.model); only Argos packages with sentencepiece.model are read"
            )
        require_file(package / TOKENIZER, "the tokenizer's model; or name it with --spm")
    opened = open_model(
        package / "model",
        limits,
        companions,
        name=f"argos-{source}-{target}",
        generation=USUAL,
        tokenizer_directory=package,
        literal=True,
    )
    plan = dataclasses.replace(opened.tokenizer_plan, source_language=source, target_language=target)
    return dataclasses.replace(opened, tokenizer_plan=plan)
