"""Are the bundle's files the ones that were verified? SHA-256 against the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dragoman.bundle.manifest import FileRecord, Manifest
from dragoman.errors import BundleError

__all__ = ["check_files", "record_file"]


def record_file(path: Path) -> FileRecord:
    """Size and SHA-256 of one file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(stream)
    return FileRecord(sha256=digest, bytes=path.stat().st_size)


def check_files(bundle: Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """BundleError that lists every file that is missing or is not what was verified."""
    problems = []
    for name in manifest.files if names is None else names:
        record, path = manifest.files[name], bundle / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            problems.append(f"{name} points outside the bundle")
        elif not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != record.bytes:
            problems.append(f"{name} has {path.stat().st_size} bytes, not {record.bytes}")
        elif record_file(path).sha256 != record.sha256:
            problems.append(f"{name} was changed after the export (its SHA-256 differs)")
    if problems:
        raise BundleError(f"{bundle} can't be trusted: {'; '.join(problems)}; export it again")


def _digest(stream: object) -> str:  # Python 3.10 has no hashlib.file_digest
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):  # type: ignore[attr-defined]
        digest.update(block)
    return digest.hexdigest()
