"""JSON from untrusted files: bounded in size, depth and digits, and every failure is one ValueError."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

__all__ = ["parse_json", "read_json_file", "read_text"]

MAX_DEPTH = 32
MAX_DIGITS = 64
"""Python converts digits in quadratic time; Hugging Face writes `int(1e30)` for "no limit"."""
MAX_BYTES = 64 << 20
"""The largest real file is a vocabulary of a quarter of a million pieces, 8 MB."""


def read_json_file(path: Path, max_bytes: int = MAX_BYTES) -> object:
    """The JSON value in `path`; OSError when it can't be opened, ValueError when it is not acceptable JSON."""
    return parse_json(read_text(path, max_bytes))


def read_text(path: Path, max_bytes: int) -> str:
    """The UTF-8 text in `path`; ValueError when it is longer or not UTF-8."""
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        content = stream.read(min(size, max_bytes) + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes} bytes")
    return content.decode("utf-8")


def parse_json(text: str) -> object:
    """The value that `text` spells; ValueError has the reason in one line."""
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_constant)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    _check_depth(value)
    return value


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if value - value != 0.0:  # infinite
        raise ValueError(f"the number {digits[:20]} is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        level = [item for item in inner if isinstance(item, (dict, list))]
        depth += 1
