"""The types of options: what a value from outside must be before anything else looks at it.

Each type reads one value of any kind that JSON can hold and returns it as the program uses it, or raises InvalidRequest.
None of them recurses into a value, converts a number before its size is known, or repeats a long value in its message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from dragoman.errors import InvalidRequest

__all__ = [
    "Boolean",
    "Choice",
    "Integer",
    "IntegerList",
    "Number",
    "OptionType",
    "Phrases",
    "Text",
    "Token",
    "TokenList",
    "TokenLists",
    "check_text",
    "refuse_unknown",
    "shown",
]

MAX_TOKEN = 2**31 - 1
_SHOWN_CHARACTERS = 60
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")


class OptionType(Protocol):
    """What a value must be."""

    def read(self, name: str, value: object) -> object:
        """`value` of the option `name` as the program uses it; InvalidRequest when it is not acceptable."""

    def __str__(self) -> str:
        """What is acceptable, for messages and documentation."""


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `least` to `most`, both included; with `optional`, also null."""

    least: int
    most: int
    optional: bool = False

    def read(self, name: str, value: object) -> int | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(name, value, self, "has the wrong type: it")
        if not self.least <= value <= self.most:
            raise _wrong(name, value, self)
        return int(value)

    def __str__(self) -> str:
        return f"a whole number between {self.least} and {self.most}"


@dataclass(frozen=True, slots=True)
class IntegerList:
    """At most `most` whole numbers."""

    most: int
    each: Integer

    def read(self, name: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(name, value, self, "has the wrong type: it")
        if len(value) > self.most:
            raise _wrong(name, value, self)
        for one in value:
            if not isinstance(one, int) or isinstance(one, bool) or not self.each.least <= one <= self.each.most:
                raise InvalidRequest(f"option {name} has {shown(one)}; it must be {self}")
        return tuple(value)

    def __str__(self) -> str:
        return f"a list of at most {self.most} whole numbers between {self.each.least} and {self.each.most}"


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `least` to `most`; with `above`, `least` itself is excluded."""

    least: float
    most: float
    above: bool = False
    optional: bool = False

    def read(self, name: str, value: object) -> float | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise _wrong(name, value, self, "has the wrong type: it")
        if not self.least <= value <= self.most or (self.above and value == self.least):  # never true for NaN
            raise _wrong(name, value, self)
        return float(value)

    def __str__(self) -> str:
        return (
            f"a number {f'above {self.least:g} and at most' if self.above else f'between {self.least:g} and'} {self.most:g}"
        )


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    def read(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise _wrong(name, value, self, "has the wrong type: it")
        return value

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def read(self, name: str, value: object) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise _wrong(name, value, self)
        return value

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Text:
    """Unicode text without control characters. `is_name`: printable and not empty. None stays None with `optional`."""

    most_characters: int
    is_name: bool = False
    optional: bool = False

    def read(self, name: str, value: object) -> str | None:
        if value is None and self.optional:
            return None
        if not isinstance(value, str):
            raise InvalidRequest(f"option {name}={shown(value)} must be a text: {self}")
        if len(value) > self.most_characters:
            raise InvalidRequest(f"option {name} has {len(value)} characters; it must be {self}")
        if self.is_name and (not value or not value.isprintable()):
            raise InvalidRequest(f"option {name} must be {self}")
        check_text(value, f"option {name}")
        return value

    def __str__(self) -> str:
        least, kind = (1, "printable ") if self.is_name else (0, "")
        return f"{least} to {self.most_characters} {kind}characters"


@dataclass(frozen=True, slots=True)
class Token:
    """A token id, or null."""

    def read(self, name: str, value: object) -> int | None:
        return Integer(0, MAX_TOKEN, optional=True).read(name, value)

    def __str__(self) -> str:
        return "a token id or null"


@dataclass(frozen=True, slots=True)
class TokenList:
    """Token ids."""

    most: int

    def read(self, name: str, value: object) -> tuple[int, ...]:
        return _tokens(name, value, self.most, self)

    def __str__(self) -> str:
        return f"a list of at most {self.most} token ids"


@dataclass(frozen=True, slots=True)
class TokenLists:
    """Lists of token ids, none of them empty unless `may_be_empty`."""

    most: int
    most_each: int
    may_be_empty: bool = False

    def read(self, name: str, value: object) -> tuple[tuple[int, ...], ...]:
        return tuple(self.read_each(name, value))

    def read_each(self, name: str, value: object) -> Iterator[tuple[int, ...]]:
        """One list after the other: very many tokens take long."""
        if not isinstance(value, (list, tuple)):
            raise _wrong(name, value, self, "has the wrong type: it")
        if len(value) > self.most:
            raise _wrong(name, value, self)
        for each in value:
            tokens = _tokens(name, each, self.most_each, self)
            if not (tokens or self.may_be_empty):
                raise InvalidRequest(f"option {name} has an empty list; it must be {self}")
            yield tokens

    def __str__(self) -> str:
        return f"a list of at most {self.most} lists of {0 if self.may_be_empty else 1} to {self.most_each} token ids"


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases with their alternatives: lists of lists of token ids."""

    most: int
    most_alternatives: int
    most_each: int

    def read(self, name: str, value: object) -> tuple[tuple[tuple[int, ...], ...], ...]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(name, value, self, "has the wrong type: it")
        if len(value) > self.most:
            raise _wrong(name, value, self)
        alternatives = TokenLists(self.most_alternatives, self.most_each)
        phrases = tuple(alternatives.read(name, each) for each in value)
        if not all(phrases):
            raise InvalidRequest(f"option {name} has a phrase without token ids; it must be {self}")
        return phrases

    def __str__(self) -> str:
        return (
            f"a list of at most {self.most} phrases, each a list of 1 to {self.most_alternatives} alternatives of 1 to "
            f"{self.most_each} token ids"
        )


def refuse_unknown(names: Iterable[object], known: Mapping[str, object]) -> None:
    """InvalidRequest for the first of `names` that is not among the known ones, which it lists."""
    for name in names:
        if name not in known:
            raise InvalidRequest(f"unknown option {shown(name)}; known are {', '.join(sorted(known))}")


def check_text(text: str, which: str) -> None:
    """InvalidRequest when `text` has control characters or is not Unicode; the message does not repeat the text."""
    if text.isprintable():
        return
    if (found := _SURROGATES.search(text)) is not None:
        raise InvalidRequest(f"{which} is not valid Unicode: it has a lone surrogate at character {found.start()}")
    if (found := _CONTROLS.search(text)) is not None:
        raise InvalidRequest(f"{which} has the control character U+{ord(found.group()):04X} at {found.start()}; remove it")


def shown(value: object) -> str:
    """`value` for a message: short, printable, and computed in constant time whatever it is."""
    if isinstance(value, (list, tuple)):
        return f"(a list of {len(value)})"
    if isinstance(value, Mapping):
        return f"(an object of {len(value)})"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"(a number of about {value.bit_length() * 0.30103:.0f} digits)"
    if isinstance(value, str):
        text = ascii(value[:_SHOWN_CHARACTERS])
        return (
            text
            if len(value) <= _SHOWN_CHARACTERS and len(text) <= 2 * _SHOWN_CHARACTERS
            else f"{text[:_SHOWN_CHARACTERS]}…"
        )
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else f"({type(value).__name__})"


def _tokens(name: str, value: object, most: int, wanted: OptionType) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(name, value, wanted, "has the wrong type: it")
    if len(value) > most:
        raise _wrong(name, value, wanted)
    for token in value:
        if not isinstance(token, int) or isinstance(token, bool):
            raise _wrong(name, token, wanted, "has the wrong type: it")
        if not 0 <= token <= MAX_TOKEN:
            raise InvalidRequest(f"option {name} has {shown(token)}; token ids are between 0 and {MAX_TOKEN}")
    return tuple(value)


def _wrong(name: str, value: object, wanted: OptionType, problem: str = "") -> InvalidRequest:
    problem = f" {problem}" if problem else ""
    return InvalidRequest(f"option {name}={shown(value)}{problem} must be {wanted}")
