"""Typed access to the JSON settings of a checkpoint: whatever has the wrong type or size is a CheckpointError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from dragoman.errors import CheckpointError

__all__ = ["JsonSettings", "shown"]

_T = TypeVar("_T")

LARGEST = 1 << 31


class JsonSettings:
    """The object of one JSON file; `null` counts as absent."""

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self.values, self.file = values, file

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def raw(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - JSON has many types
        """The value as it stands, for what has several legitimate types."""
        value = self.values.get(name)
        return default if value is None else value

    def number(self, name: str, default: int | None = None) -> int:
        """A positive whole number that must be there unless it has a default."""
        value = self.raw(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            raise CheckpointError(f"{self.file} must give {name} as a positive whole number, not {shown(value)}")
        return value

    def real(self, name: str, default: float) -> float:
        """A number."""
        value = self.raw(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < LARGEST:
            raise CheckpointError(f"{self.file} must give {name} as a number, not {shown(value)}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.file} must give {name} as true or false, not {shown(value)}")
        return value

    def text(self, name: str, default: str | None = None) -> str | None:
        """A string."""
        value = self.raw(name, default)
        if value is not None and (not isinstance(value, str) or len(value) > 200 or not value.isprintable()):
            raise CheckpointError(f"{self.file} must give {name} as a short text, not {shown(value)}")
        return value

    def choice(self, name: str, choices: Mapping[str, _T], default: str) -> _T:
        """What one of several known words stands for."""
        word = self.text(name, default)
        if word is None or word not in choices:
            raise CheckpointError(f"{name} {word!r} in {self.file} is not known (known: {', '.join(choices)})")
        return choices[word]

    def token(self, name: str) -> int | None:
        """A token id, which may be stored as a list of one."""
        listed = self.tokens(name)
        if len(listed) > 1:
            raise CheckpointError(f"{name} is {shown(self.raw(name))} in {self.file}; dragoman supports one token id")
        return listed[0] if listed else None

    def tokens(self, name: str) -> tuple[int, ...]:
        """Token ids: a list, one alone, or none."""
        value = self.raw(name, [])
        listed = value if isinstance(value, list) else [value]
        for token in listed:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < LARGEST:
                raise CheckpointError(f"{name} is {shown(value)} in {self.file}; it must be a token id, or several")
        return tuple(listed)


def shown(value: object) -> str:
    """`value` in an error message: one line, not too long."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
