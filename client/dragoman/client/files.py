"""A file translated line by line, so that it can be interrupted at any moment and taken up again.

Lines are appended to `OUTPUT.part`; `OUTPUT.part.json` names the job it belongs to. When the last line is
written the part takes the name OUTPUT, in one step. So OUTPUT is never half a file, and what was translated is never
lost: a job that finds its own part counts the lines in it and goes on after them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from dragoman.counts import counted
from dragoman.drafts import draft_of
from dragoman.errors import DragomanError, UsageError

__all__ = [
    "FileJob",
    "FileReport",
    "check_encoding",
    "check_output",
    "count_lines",
    "decode_lines",
    "not_utf8",
    "read_lines",
]

_FINGERPRINT_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1_000_000
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT = 1000
"""Bytes at the beginning of a file, which has none of value 0 if it is UTF-8."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of a file: all its lines, and how many of them an earlier run had translated already."""

    output: Path
    lines: int
    resumed_lines: int


class FileJob:
    """The part file of one job, open for appending; a context manager that keeps the part when something fails."""

    def __init__(self, source: Path, output: Path, settings: Mapping[str, object], restart: bool = False) -> None:
        self._source, self._output = source, output
        self._part = output.with_name(output.name + ".part")
        self._note = output.with_name(output.name + ".part.json")
        check_output(output)
        if output.exists() and source.exists() and source.samefile(output):
            raise UsageError(f"{output} is the input; write the translation to another file")
        identity = {"input": _fingerprint(source), "settings": json.loads(json.dumps(settings, sort_keys=True))}
        if restart:
            self._part.unlink(missing_ok=True)
        self.resumed_lines = self._resume(identity)
        try:
            with draft_of(self._note) as draft:
                draft.write_text(json.dumps(identity, ensure_ascii=False), encoding="utf-8")
            # Unbuffered: whatever ends this process, the lines are there.
            self._stream = self._part.open("ab", buffering=0)
        except OSError as error:
            raise UsageError(f"{self._part} can't be written: {error.strerror}") from None
        self.lines = self.resumed_lines

    def remaining(self) -> Iterator[str]:
        """The lines that are not translated yet."""
        return read_lines(self._source, skip=self.resumed_lines)

    def write(self, line: str) -> None:
        """Append one translated line, which must be one: a line break inside would shift all that follow."""
        rest = line.encode() + b"\n"
        try:
            while rest:  # a disk that is filling up takes a part; resuming drops a torn line
                rest = rest[self._stream.write(rest) :]
        except OSError as error:
            raise DragomanError(
                f"{self._part} can't be written: {error.strerror}; {counted(self.lines, 'line')} kept"
            ) from None
        self.lines += 1

    def finish(self) -> FileReport:
        """All lines are written: the part becomes the output."""
        os.fsync(self._stream.fileno())
        self._stream.close()
        self._part.replace(self._output)
        self._note.unlink(missing_ok=True)
        return FileReport(self._output, self.lines, self.resumed_lines)

    def __enter__(self) -> FileJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.close()

    def _resume(self, identity: Mapping[str, object]) -> int:
        """Lines of an earlier run of this very job; UsageError when the part belongs to another."""
        if not self._part.exists():
            return 0
        try:
            earlier = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            earlier = None
        if earlier != identity:
            changed = "the input" if not earlier or earlier.get("input") != identity["input"] else "the options"
            raise UsageError(
                f"{self._part} holds an unfinished translation, but {changed} changed since; "
                "take it up as it was, or start again with --restart (restart=True)"
            )
        return _drop_torn_line(self._part)


def read_lines(path: Path, skip: int = 0) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends, after the first `skip`; never more than one in memory."""
    try:
        with path.open("rb") as stream:
            yield from decode_lines(stream, str(path), skip)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None


def decode_lines(stream: BinaryIO, name: str, skip: int = 0) -> Iterator[str]:
    """The same for an open stream, called `name` in errors."""
    for number in itertools.count(1):
        raw = stream.readline(_LONGEST_LINE_BYTES + 1)
        if not raw:
            return
        if len(raw) > _LONGEST_LINE_BYTES:
            raise UsageError(f"{name} line {number} has more than {_LONGEST_LINE_BYTES:,} bytes; is it text in lines?")
        if number > skip:
            yield _decoded(raw, number, name)


def count_lines(path: Path) -> int:
    """How many lines `read_lines` gives."""
    _check_regular(path)
    lines, last = 0, b"\n"
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                lines += block.count(b"\n")
                last = block[-1:]
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    return lines + (last != b"\n")


def check_output(path: Path) -> None:
    """UsageError for what can't be replaced by a file: a directory, or a device."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name a file in it")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no regular file; leave out --output and redirect with > {path}")


def _decoded(raw: bytes, number: int, name: str) -> str:
    try:
        if number == 1:
            check_encoding(raw, name)
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(f"{name} line {number}", raw, error.start) from None
    return text.rstrip("\r\n")


def check_encoding(raw: bytes, name: str) -> None:
    """UsageError for a file that begins like UTF-16, much of which can be read as UTF-8."""
    if raw.startswith(_UTF16) or b"\0" in raw[:_LOOKED_AT]:
        encoding = "utf-16" if raw.startswith(_UTF16) else "utf-16be" if raw.startswith(b"\0") else "utf-16le"
        raise UsageError(f"{name} is not UTF-8, but looks like UTF-16; convert it first with iconv -f {encoding} -t utf-8")


def not_utf8(name: str, raw: bytes, at: int) -> UsageError:
    """For bytes that can't be read."""
    return UsageError(
        f"{name} is not UTF-8 (byte 0x{raw[at]:02x} at {at + 1}); "
        "convert it first, for example with iconv -f latin1 -t utf-8"
    )


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} can't be read: it is a directory; name a file in it")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} can't be read twice, as resuming needs: it is no regular file; pipe it in instead")


def _fingerprint(source: Path) -> dict[str, object]:
    """Cheap for a file of any size: its length and the hash of its beginning."""
    _check_regular(source)
    try:
        with source.open("rb") as stream:
            digest = hashlib.sha256(stream.read(_FINGERPRINT_BYTES)).hexdigest()
            return {"bytes": os.fstat(stream.fileno()).st_size, "sha256_of_first_mib": digest}
    except OSError as error:
        raise UsageError(f"{source} can't be read: {error.strerror}") from None


def _drop_torn_line(part: Path) -> int:
    """Cut off what was written after the last line end (the machine went down while writing); whole lines left."""
    lines, end, offset = 0, 0, 0
    with part.open("r+b") as stream:
        while block := stream.read(_BLOCK_BYTES):
            lines += block.count(b"\n")
            if (last := block.rfind(b"\n")) >= 0:
                end = offset + last + 1
            offset += len(block)
        if end != offset:
            stream.truncate(end)
    return lines
