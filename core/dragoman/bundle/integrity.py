"""Checks a bundle's files against the SHA-256 hashes of its manifest; never opens a file outside the bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dragoman.bundle.manifest import FileRecord, Manifest
from dragoman.errors import BundleError

__all__ = ["check_files", "path_in_bundle", "record_file"]


def record_file(path: Path) -> FileRecord:
    """Size and SHA-256 of one file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(stream)
    return FileRecord(sha256=digest, bytes=path.stat().st_size)


def path_in_bundle(bundle: Path, name: str) -> Path:
    """The path of the bundle's file `name`; BundleError when it is outside the bundle, by its name or by a symbolic link."""
    path = bundle / name
    try:
        inside = path.resolve().is_relative_to(bundle.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a NUL in the name
        raise BundleError(f"{name!r} is no file of the bundle {bundle}: {error}") from error
    if Path(name).is_absolute() or ".." in Path(name).parts or not inside:
        raise BundleError(f"{name!r} points outside the bundle {bundle}")
    return path


def check_files(bundle: Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """BundleError that lists every file that is missing or has changed since the verification."""
    if not manifest.files:
        raise BundleError(f"{bundle} can't be trusted: its manifest lists no files; export it again")
    problems = []
    for name in manifest.files if names is None else names:
        try:
            problem = _problem(path_in_bundle(bundle, name), name, manifest.files[name])
        except BundleError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{name} can't be read: {error.strerror}"
        if problem is not None:
            problems.append(problem)
    if problems:
        raise BundleError(f"{bundle} can't be trusted: {'; '.join(problems)}; export it again")


def _problem(path: Path, name: str, record: FileRecord) -> str | None:
    if not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != record.bytes:
        return f"{name} has {path.stat().st_size} bytes, not {record.bytes}"
    if record_file(path).sha256 != record.sha256:
        return f"{name} was changed after the export (its SHA-256 differs)"
    return None


def _digest(stream: object) -> str:  # Python 3.10 has no hashlib.file_digest
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):  # type: ignore[attr-defined]
        digest.update(block)
    return digest.hexdigest()
