"""A bound on the memory that opening a file may take: a small file can claim to contain anything."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["memory_for"]

ROOM_BYTES = 512 << 20
TIMES_THE_FILE = 2
"""The file once as it is mapped, and once as it is read."""


@contextmanager
def memory_for(path: Path) -> Iterator[None]:
    """Inside, the process gets no more address space than opening `path` can need; asking for more is a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + ROOM_BYTES + TIMES_THE_FILE * path.stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
