"""The subset of YAML that Marian writes: settings one level deep, and vocabularies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from dragoman.errors import CheckpointError

__all__ = ["MarianSettings", "parse_settings", "parse_vocabulary"]

Value = str | list[str]
ENTRY = re.compile(r"([A-Za-z0-9_.-]+):(?: (.*))?")
NEUTRAL = ("", "~", "null", "[]", '""', "''")


class MarianSettings:
    """Values as they stand; asked for as what they should be."""

    def __init__(self, values: dict[str, Value], file: str) -> None:
        self.values, self.file = values, file

    def text(self, name: str, default: str = "") -> str:
        """One value."""
        value = self.values.get(name, default)
        if isinstance(value, list):
            raise CheckpointError(f"{self.file} must give {name} as one value")
        return default if value in ("~", "null") else value

    def texts(self, name: str) -> list[str]:
        """A list."""
        value = self.values.get(name, [])
        return value if isinstance(value, list) else [value] if value not in NEUTRAL else []

    def flag(self, name: str, default: bool = False) -> bool:
        """true or false."""
        value = self.text(name, "true" if default else "false")
        if value.lower() not in ("true", "false"):
            raise CheckpointError(f"{self.file} must give {name} as true or false, not {ascii(value)[:60]}")
        return value.lower() == "true"

    def number(self, name: str, default: int | None = None) -> int:
        """A positive whole number."""
        value = self.text(name, "" if default is None else str(default))
        if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
            raise CheckpointError(f"{self.file} must give {name} as a positive whole number, not {ascii(value)[:60]}")
        return int(value)

    def real(self, name: str, default: float) -> float:
        """A number; true and false are 1 and 0, as Marian takes them."""
        value = {"true": "1", "false": "0"}.get(self.text(name, str(default)), self.text(name, str(default)))
        if not re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,20})?(e-?[0-9]{1,2})?", value):
            raise CheckpointError(f"{self.file} must give {name} as a number, not {ascii(value)[:60]}")
        return float(value)


def parse_settings(text: str, file: str) -> MarianSettings:
    """`name: value`, and lists in brackets or with dashes."""
    values: dict[str, Value] = {}
    listed: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#") or bare in ("---", "..."):
            continue
        if listed is not None and (bare.startswith("- ") or bare == "-"):
            items = values.setdefault(listed, [])
            if isinstance(items, list):
                items.append(_scalar(bare[2:].strip()))
            continue
        if (line[0] == " " and listed is not None) or (found := ENTRY.fullmatch(line.rstrip())) is None:
            if line[0] in " -":
                continue  # deeper than anything that is asked for
            raise CheckpointError(f"line {number} of {file} is not a setting: {ascii(line)[:60]}")
        name, value = found[1], (found[2] or "").strip()
        listed = name if not value else None
        if value.startswith("[") and value.endswith("]"):
            values[name] = [_scalar(item.strip()) for item in value[1:-1].split(",") if item.strip()]
        elif value:
            values[name] = _scalar(value)
    return MarianSettings(values, file)


def parse_vocabulary(lines: Iterator[str] | list[str], file: str) -> dict[str, int]:
    """`piece: id` on every line; a piece may be quoted."""
    ids: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        bare = line.rstrip("\r\n")
        if not bare.strip() or bare in ("---", "..."):
            continue
        piece, found, index = bare.rpartition(":")
        if not found or not re.fullmatch(r"\s*[0-9]{1,9}\s*", index):
            raise CheckpointError(f"{file} is not a vocabulary of Marian: line {number} must be a piece, a colon and its id")
        ids[_scalar(piece.strip(" \t"))] = int(index)
    if len(set(ids.values())) != len(ids):
        raise CheckpointError(f"{file} gives one id to two pieces")
    return ids


def _scalar(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", text), strict=False))
        except ValueError:
            return text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text
