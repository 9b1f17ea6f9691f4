"""The glossaries of an engine process: those of the operator, and those that come with requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from dragoman.errors import InvalidRequest
from dragoman.search.option_types import Text, shown
from dragoman.serving.text.glossary import (
    MOST_CHARACTERS,
    MOST_TERMS_OF_A_REQUEST,
    Glossary,
    Pair,
    glossary_of_pairs,
)

__all__ = ["Glossaries", "GlossaryOption", "GlossaryValue"]

GlossaryValue = str | tuple[Pair, ...]
"""The name of one of the server's, or the terms themselves."""

_MOST_NAME_CHARACTERS = 40


class GlossaryOption:
    """The option `glossary`: a name, or a list of pairs [source, target]; or null."""

    def read(self, name: str, value: object) -> GlossaryValue | None:
        if value is None:
            return None
        if isinstance(value, str):
            return Text(_MOST_NAME_CHARACTERS, is_name=True).read(name, value)
        if not isinstance(value, (list, tuple)):
            raise InvalidRequest(f"option {name}={shown(value)} has the wrong type: it must be {self}")
        if len(value) > MOST_TERMS_OF_A_REQUEST:
            raise InvalidRequest(f"option {name} has {len(value)} terms; it must be {self}")
        pairs = tuple(self._pair(name, pair) for pair in value)
        glossary_of_pairs(pairs)  # refuses contradictions
        return pairs

    def _pair(self, name: str, pair: object) -> Pair:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InvalidRequest(f"option {name} has {shown(pair)} among its terms; it must be {self}")
        characters = Text(MOST_CHARACTERS + 1)  # with the ! of a forbidden one
        source, target = (characters.read(name, term) for term in pair)
        if source is None or target is None:
            raise InvalidRequest(f"option {name} has a term without text; it must be {self}")
        return source, target

    def __str__(self) -> str:
        return (
            f"the name of one of the server's glossaries, or a list of at most {MOST_TERMS_OF_A_REQUEST} pairs "
            f"[source, target] of at most {MOST_CHARACTERS} characters each"
        )


class Glossaries:
    """Named glossaries, as they were when the process started. Those of requests are cached, because they come again."""

    def __init__(self, named: Mapping[str, Glossary]) -> None:
        self._named = dict(named)
        self._of_pairs = lru_cache(maxsize=16)(glossary_of_pairs)

    def check(self, value: GlossaryValue | None) -> None:
        """InvalidRequest for the name of an unknown glossary."""
        if isinstance(value, str) and value not in self._named:
            known = ", ".join(sorted(self._named)) or "none"
            raise InvalidRequest(f"there is no glossary {shown(value)}; this server has: {known} (serve --glossary)")

    def of(self, value: GlossaryValue | None) -> Glossary | None:
        """The glossary that a request names or contains."""
        if value is None:
            return None
        self.check(value)
        return self._named[value] if isinstance(value, str) else self._of_pairs(value)
