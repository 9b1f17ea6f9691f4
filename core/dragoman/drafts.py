"""Files that are replaced as a whole: a reader sees the old content or the new one, never a part of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.errors import UsageError

__all__ = ["draft_of"]


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Where the new content of `path` is to be written; it replaces the file when the block ends, unless that raises.

    UsageError if one of the two can't be written.
    """
    draft = path.with_name(path.name + ".new")
    try:
        yield draft
        with draft.open("rb+") as stream:  # on the disk before it has the name: a machine may go down at any moment
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
