"""Frozen dataclasses from parsed JSON: every field is checked against its annotation, types, ranges and lengths alike.

size: Annotated[int, Range(1, 1024)]
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union

from dragoman.errors import BundleError, InvalidRequest

__all__ = ["FILE_NAME", "SHA256", "Pattern", "Range", "build"]

_T = TypeVar("_T")

INT64 = 2**63 - 1
MAX_STRING = 4096
MAX_ITEMS = 1 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `least` to `most`, both included."""

    least: float
    most: float

    def holds(self, value: object) -> bool:
        """Whether a number lies in the range."""
        return isinstance(value, (int, float)) and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"between {self.least} and {self.most}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Strings that a regular expression matches whole."""

    expression: str
    description: str

    def holds(self, value: object) -> bool:
        """Whether a string matches."""
        return isinstance(value, str) and re.fullmatch(self.expression, value) is not None

    def __str__(self) -> str:
        return self.description


FILE_NAME = Pattern(
    r"(?!\.{1,2}(/|$))[^/\\\x00-\x1f\x7f]{1,200}(/(?!\.{1,2}(/|$))[^/\\\x00-\x1f\x7f]{1,200}){0,3}",
    "a relative path inside the bundle",
)
SHA256 = Pattern(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal")


def build(kind: type[_T], raw: object, where: str) -> _T:
    """A dataclass of `kind` from parsed JSON; BundleError names the field that is wrong."""
    if not isinstance(raw, Mapping):
        raise BundleError(f"{where} must be an object")
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    missing_value = dataclasses.MISSING
    required = {spec.name for spec in fields if spec.default is missing_value and spec.default_factory is missing_value}
    if missing := sorted(required - set(raw)):
        raise BundleError(f"{where} lacks {', '.join(missing)}")
    if unknown := sorted(set(raw) - {spec.name for spec in fields}):
        raise BundleError(f"{where} has unknown fields {_short(', '.join(unknown))}")
    values = {name: _value(hints[name], value, f"{where}.{name}") for name, value in raw.items()}
    try:
        return kind(**values)
    except InvalidRequest as error:  # decoding options check themselves
        raise BundleError(f"{where} is impossible: {error}") from error


def _value(hint: Any, raw: object, where: str) -> object:  # noqa: ANN401 - annotations have no common type
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        value = _value(arguments[0], raw, where)
        for rule in arguments[1:]:
            _check(rule.holds(value), raw, where, str(rule))
        return value
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), raw, where)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, raw, where)
    if origin is Literal:
        _check(isinstance(raw, str) and raw in arguments, raw, where, f"one of {', '.join(arguments)}")
        return raw
    if origin is tuple:
        return tuple(_value(arguments[0], value, f"{where}[{at}]") for at, value in enumerate(_list(raw, where)))
    if origin is dict:
        return {
            _value(arguments[0], key, f"{where} (a name)"): _value(arguments[1], value, f"{where}.{_short(key)}")
            for key, value in _mapping(raw, where).items()
        }
    return _scalar(hint, raw, where)


def _scalar(hint: Any, raw: object, where: str) -> object:  # noqa: ANN401
    if hint is float:
        number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
        _check(number and abs(typing.cast(float, raw)) <= INT64, raw, where, "a number")
        return float(typing.cast(float, raw))
    if hint is int:
        whole = isinstance(raw, int) and not isinstance(raw, bool)
        _check(whole and abs(typing.cast(int, raw)) <= INT64, raw, where, "a whole number")
        return raw
    if hint is str:
        _check(isinstance(raw, str) and len(raw) <= MAX_STRING and _is_text(raw), raw, where, "a short text")
        return raw
    _check(isinstance(raw, hint), raw, where, f"a {hint.__name__}")
    return raw


def _one_of(choices: tuple[Any, ...], raw: object, where: str) -> object:
    if raw is None and type(None) in choices:
        return None
    refused = BundleError(f"{where} must not be null")
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _value(choice, raw, where)
        except BundleError as error:
            refused = error
    raise refused


def _list(raw: object, where: str) -> list[object]:
    _check(isinstance(raw, list) and len(raw) <= MAX_ITEMS, raw, where, "a list")
    return typing.cast("list[object]", raw)


def _mapping(raw: object, where: str) -> dict[str, object]:
    _check(isinstance(raw, dict) and len(raw) <= MAX_ITEMS, raw, where, "an object")
    return typing.cast("dict[str, object]", raw)


def _is_text(value: str) -> bool:
    """Printable on a terminal and encodable as UTF-8: no control characters, no half of a surrogate pair."""
    return not any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in value)


def _check(holds: bool, raw: object, where: str, wanted: str) -> None:
    if not holds:
        raise BundleError(f"{where} is {_short(raw)} but must be {wanted}")


def _short(raw: object) -> str:
    text = ascii(raw)  # escapes what a terminal can't show
    return text if len(text) <= 60 else f"{text[:57]}…"
