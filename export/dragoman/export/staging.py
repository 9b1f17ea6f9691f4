"""A bundle is written completely or not at all: it is written beside its destination and renamed into place."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from dragoman.errors import ExportError

__all__ = ["interrupted_by_sigterm", "staged_directory"]


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """While it lasts, SIGTERM ends the work as Ctrl-C does: by an exception that cleans up on its way.

    Only the main thread may change signal handlers; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def staged_directory(destination: Path, *, force: bool) -> Iterator[Path]:
    """An empty directory that becomes `destination` when the block ends well, and vanishes when it does not.

    An existing `destination` is refused unless `force`, and then replaced only at the very end, so that a failed
    export leaves the old bundle as it was.
    """
    if destination.exists() and not force:
        raise ExportError(f"{destination} exists; choose another --output or replace it with --force")
    if destination.exists() and not _replaceable(destination):
        raise ExportError(f"{destination} exists and is not a bundle; --force replaces bundles only")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".part", dir=destination.parent))
    except OSError as error:
        raise ExportError(f"can't write beside {destination}: {error.strerror}") from error
    try:
        yield staging
        staging.chmod(0o755)  # mkdtemp makes it private; a server under another user reads bundles
        _swap(staging, destination)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free_mb = shutil.disk_usage(destination.parent).free / 1e6
            raise ExportError(
                f"the disk of {destination.parent} is full ({free_mb:.0f} MB free); make room or choose another --output"
            ) from error
        raise ExportError(f"can't write {destination}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replaceable(destination: Path) -> bool:
    return destination.is_dir() and ((destination / "manifest.json").is_file() or not any(destination.iterdir()))


def _swap(staging: Path, destination: Path) -> None:
    if not destination.exists():
        staging.rename(destination)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".old", dir=destination.parent))
    os.replace(destination, old)  # noqa: PTH105 - replaces the empty directory; Path.rename says the same less clearly
    try:
        staging.rename(destination)
    except OSError:
        os.replace(old, destination)  # noqa: PTH105
        raise
    shutil.rmtree(old, ignore_errors=True)
