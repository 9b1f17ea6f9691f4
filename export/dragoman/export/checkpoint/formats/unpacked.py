"""A zip archive as a temporary directory. Nothing is written outside it, and no more than the archive declares."""

from __future__ import annotations

import shutil
import stat
import tempfile
import weakref
import zipfile
from pathlib import Path, PurePosixPath

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.formats.zips import ZIP_ERRORS, told
from dragoman.export.checkpoint.settings import shown

__all__ = ["Unpacked"]

MOST_FILES = 10_000
MOST_BYTES = 64 << 30
MOST_TIMES_LARGER = 200
"""Than the archive: weights shrink to nearly nothing only if somebody made them to fill a disk."""
ROOM_FOR_SMALL = 64 << 20
CHUNK = 1 << 20


class Unpacked:
    """The files of `archive` below `directory`, which is deleted with this object."""

    def __init__(self, archive: Path) -> None:
        try:
            with zipfile.ZipFile(archive) as opened:
                members = opened.infolist()
                _check(archive, members)
                self.directory = Path(tempfile.mkdtemp(prefix="dragoman-"))
                self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
                for member in members:
                    _extract(opened, member, self.directory)
        except ZIP_ERRORS as error:
            raise CheckpointError(
                f"{archive} is not a zip archive that can be read: {told(error)}; fetch it again"
            ) from error


def _check(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_FILES:
        raise CheckpointError(f"{archive} has {len(members)} files, more than {MOST_FILES}")
    for member in members:
        path = PurePosixPath(member.filename)
        outside = path.is_absolute() or ".." in path.parts or "\\" in member.filename or "\0" in member.filename
        kind = stat.S_IFMT(member.external_attr >> 16)
        if outside or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise CheckpointError(f"{archive} has a file that would lie outside, or is none: {shown(member.filename)}")
    size, allowed = sum(member.file_size for member in members), archive.stat().st_size * MOST_TIMES_LARGER
    if size > min(MOST_BYTES, max(allowed, ROOM_FOR_SMALL)):
        raise CheckpointError(f"{archive} unpacks to {size} bytes, far more than a model of its size has")


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, directory: Path) -> None:
    """Writes no more than the declared size, which has been checked."""
    target = directory / member.filename
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    left = member.file_size
    with opened.open(member) as packed, target.open("wb") as stream:
        while chunk := packed.read(min(CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                raise zipfile.BadZipFile(f"{shown(member.filename)} is longer than it says")
            stream.write(chunk)
