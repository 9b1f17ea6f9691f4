"""The oldest glibc that a shared library runs on, read from the symbol versions in the file (64-bit ELF).

Standard library only, like `build.py`: it names the platform of a wheel while that is made.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["oldest_glibc"]

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
NEEDED_FILE = struct.Struct("<HHIII")  # Elf64_Verneed: version, entries, file name, first entry, next file
NEEDED_VERSION = struct.Struct("<IHHII")  # Elf64_Vernaux: hash, flags, other, name, next entry
SHT_GNU_VERNEED = 0x6FFFFFFE


class _Section(NamedTuple):
    kind: int
    offset: int
    link: int  # number of the section with its strings


def oldest_glibc(library: Path) -> tuple[int, int]:
    """The highest GLIBC_… version among the symbols that the library takes from elsewhere; (2, 0) when there is none."""
    versions = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name) for name in _needed_versions(library.read_bytes())]
    return max(((int(found[1]), int(found[2])) for found in versions if found is not None), default=(2, 0))


def _needed_versions(content: bytes) -> Iterator[str]:
    sections = _sections(content)
    for section in (each for each in sections if each.kind == SHT_GNU_VERNEED):
        strings, at = sections[section.link].offset, section.offset
        while True:
            _, entries, _, first, following = NEEDED_FILE.unpack_from(content, at)
            entry_at = at + first
            for _ in range(entries):
                *_, name, next_entry = NEEDED_VERSION.unpack_from(content, entry_at)
                start = strings + name
                yield content[start : content.index(b"\0", start)].decode("ascii")
                entry_at += next_entry
            if following == 0:
                break
            at += following


def _sections(content: bytes) -> list[_Section]:
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is no 64-bit little-endian ELF file")
    fields = HEADER.unpack_from(content)
    table, size, count = fields[6], fields[11], fields[12]
    found = (SECTION.unpack_from(content, table + number * size) for number in range(count))
    return [_Section(kind=each[1], offset=each[4], link=each[6]) for each in found]
