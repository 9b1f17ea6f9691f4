"""dragoman.json: what a file of weights does not say about its model. Unknown names are refused."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from dragoman.errors import CheckpointError
from dragoman.export.checkpoint.files import read_json, require_file
from dragoman.export.checkpoint.settings import JsonSettings, shown

__all__ = ["DESCRIPTION", "Description", "closest", "described_format", "read_description"]

DESCRIPTION = "dragoman.json"


def closest(name: str, known: Iterable[str]) -> str:
    """`; the closest are a, b` for a message, or nothing where nothing is close."""
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
    return f"; the closest are {', '.join(found)}" if len(found) > 1 else f"; the closest is {found[0]}" if found else ""


class Description(JsonSettings):
    """One object of the description. It records which settings were read: the others are unknown."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        super().__init__(values, where)
        self.where = where
        self._asked: set[str] = set()
        self._sections: dict[str, Description] = {}

    def __contains__(self, name: str) -> bool:
        self._asked.add(name)
        return super().__contains__(name)

    def raw(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - JSON has many types
        self._asked.add(name)
        return super().raw(name, default)

    def section(self, name: str, *, required: bool = True) -> Description:
        """An object in it."""
        if name not in self._sections:
            value = self.raw(name, None if required else {})
            if not isinstance(value, dict):
                raise CheckpointError(f"{self.where} must have an object {name!r}, not {shown(value)}")
            self._sections[name] = Description(value, f"{name!r} in {self.where}")
        return self._sections[name]

    def required(self, name: str) -> str:
        """A string that must be there."""
        value = self.text(name)
        if not value:
            raise CheckpointError(f"{self.where} must give {name!r}")
        return value

    def one_of(self, name: str, choices: Iterable[str], default: str | None = None) -> str:
        """One of several words."""
        words = {word: word for word in choices}
        return self.choice(name, words, default if default is not None else "")

    def beside(self, directory: Path, file: str, name: str) -> Path:
        """A file that the description names: it lies in the description's own directory or below."""
        path = directory / file
        if Path(file).is_absolute() or ".." in Path(file).parts or "\0" in file:
            raise CheckpointError(f"{name} in {self.where} must be a path below {directory}, not {shown(file)}")
        return path

    def refuse(self, name: str, value: object, known: Iterable[str], where: str) -> NoReturn:
        """CheckpointError: `value` names nothing."""
        near = closest(value, known) if isinstance(value, str) else ""
        raise CheckpointError(f"{name} in {self.where} is {shown(value)}, which is not {where}{near}")

    def check_read(self) -> None:
        """CheckpointError for a setting that nothing has read, here or in a section: it is misspelt."""
        for name in sorted(set(self.values) - self._asked):
            raise CheckpointError(f"{self.where} has {shown(name)}, which means nothing{closest(name, self._asked)}")
        for section in self._sections.values():
            section.check_read()


def described_format(source: Path) -> str | None:
    """The format that the description of `source`, a directory or a file in one, names; None without a description."""
    directory = source if source.is_dir() else source.parent
    if not (directory / DESCRIPTION).is_file():
        return None
    name = read_json(directory / DESCRIPTION).get("format")
    return name if isinstance(name, str) else None


def read_description(source: Path) -> tuple[Description, Path]:
    """The description of `source`, and the directory that it lies in."""
    directory = source if source.is_dir() else source.parent
    path = require_file(directory / DESCRIPTION, "the description of the model")
    return Description(read_json(path), DESCRIPTION), directory
