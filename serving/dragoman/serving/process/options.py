"""The options of a request, from its JSON: one schema for all handlers.

Types, ranges and lengths are checked before a value is used; an error names the option and the accepted values.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn, get_args

from dragoman.bundle.language_codes import MAX_CODE_CHARACTERS
from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageResolver, LanguageTokens
from dragoman.bundle.manifest import Dimensions, Segmentation, Tasks
from dragoman.bundle.tasks import TASK_NAME, TASK_PREFIX, chosen_task
from dragoman.errors import InvalidRequest
from dragoman.search.constraints import check_tokens
from dragoman.search.option_types import Boolean, Choice, Integer, IntegerList, Number, OptionType, Text, refuse_unknown
from dragoman.search.options import DECODING_OPTIONS, DecodingOptions, from_mapping
from dragoman.serving.process.glossaries import Glossaries, GlossaryOption, GlossaryValue
from dragoman.serving.text.formats import TextFormat
from dragoman.serving.text.suspicion import OnSuspicion
from dragoman.wire import Limits

__all__ = ["OptionsReader", "Priority", "RequestOptions", "parse_object"]

Priority = Literal["interactive", "batch"]

NO_TASKS = Tasks()
NO_GLOSSARIES = Glossaries({})
_MAX_CACHED_TOKENS = 256
_MAX_REMEMBERED_BYTES = 1024
_MOST_PLACES = _MOST_ALTERNATIVES = 16
_LAST_PLACE = 9_999_999
"""No translation has so many characters."""
_MAX_DIGITS = 64
"""Python converts digits in quadratic time; no option needs so many."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a caller asks for beside the text, validated."""

    decoding: DecodingOptions
    request_id: str = ""
    timeout_s: float | None = None
    priority: Priority = "interactive"
    prefix_text: str = ""
    split: Segmentation | None = None
    on_suspicion: OnSuspicion = "ignore"
    cache: bool = True
    alignment: bool = False
    alternatives_at: tuple[int, ...] = ()
    num_alternatives: int = 5
    source_language: str | None = None
    target_language: str | None = None
    language_tokens: LanguageTokens = NO_LANGUAGE_TOKENS
    language_pair: str = ""
    task_prefix: str = ""
    format: TextFormat = "text"
    placeholders: bool = True
    capitals: bool = True
    translate_attributes: bool = False
    glossary: GlossaryValue | None = None
    named: frozenset[str] = frozenset()
    """Which options the caller gave."""
    usual: DecodingOptions | None = None
    """`decoding` without the search options of the request: those of the task, or of the model."""

    @property
    def may_be_cached(self) -> bool:
        """Long lists of tokens would fill the response cache with keys instead of answers."""
        listed = len(self.decoding.prefix) + sum(map(len, self.decoding.bad_words)) + len(self.prefix_text)
        listed += len(self.task_prefix)
        if isinstance(self.glossary, tuple):
            listed += sum(len(source) + len(target) for source, target in self.glossary)
        return self.cache and listed <= _MAX_CACHED_TOKENS

    def cache_key(self, text: str) -> tuple[object, ...]:
        """Everything that changes the translation of `text`."""
        source = self.source_language  # decides where sentences end
        return (
            *(text, self.decoding, self.prefix_text, self.split, self.alignment, self.on_suspicion),
            *(source, self.language_tokens, self.task_prefix),
            *(self.format, self.placeholders, self.glossary, self.alternatives_at),
            self.num_alternatives if self.alternatives_at else 0,
            *(self.capitals, self.translate_attributes),
        )


class OptionsReader:
    """The options that this server takes for this model."""

    def __init__(  # noqa: PLR0917 - one of each
        self,
        dimensions: Dimensions,
        defaults: DecodingOptions,
        limits: Limits,
        languages: LanguageResolver,
        tasks: Tasks = NO_TASKS,
        glossaries: Glossaries = NO_GLOSSARIES,
    ) -> None:
        self._glossaries = glossaries
        self.defaults = defaults
        self._dimensions, self._limits, self._languages, self._tasks = dimensions, limits, languages, tasks
        self._own: Mapping[str, OptionType] = {
            "request_id": Text(128, is_name=True, optional=True),
            "timeout_ms": Number(0, limits.max_timeout_ms, above=True, optional=True),
            "priority": Choice(get_args(Priority)),
            "prefix_text": Text(limits.max_options_bytes),
            "split": Choice(get_args(Segmentation)),
            "on_suspicion": Choice(get_args(OnSuspicion)),
            "cache": Boolean(),
            "alignment": Boolean(),
            "alternatives_at": IntegerList(_MOST_PLACES, Integer(0, _LAST_PLACE)),
            "num_alternatives": Integer(1, _MOST_ALTERNATIVES),
            "source_language": Text(MAX_CODE_CHARACTERS, is_name=True, optional=True),
            "target_language": Text(MAX_CODE_CHARACTERS, is_name=True, optional=True),
            "task": TASK_NAME,
            "task_prefix": TASK_PREFIX,
            "format": Choice(get_args(TextFormat)),
            "placeholders": Boolean(),
            "capitals": Boolean(),
            "translate_attributes": Boolean(),
            "glossary": GlossaryOption(),
        }
        self.schema: Mapping[str, OptionType] = {**DECODING_OPTIONS, **self._own}
        self._id_prefix, self._ids = secrets.token_hex(4), itertools.count()
        # Callers send the same few options again and again; validating them costs more than finding them.
        self._remembered = lru_cache(maxsize=256)(self._read)

    def read(self, raw: bytes) -> RequestOptions:
        """The options in the JSON object `raw`; InvalidRequest names the first one that can not be met."""
        is_usual = len(raw) <= _MAX_REMEMBERED_BYTES and b"request_id" not in raw  # longer ones seldom come again
        return self._remembered(raw) if is_usual else self._read(raw)

    def new_request_id(self) -> str:
        """For a request without one; no two get the same."""
        return f"{self._id_prefix}{next(self._ids):08x}"

    def _read(self, raw: bytes) -> RequestOptions:
        """The options as the caller gave them."""
        given = parse_object(raw, "OPTIONS", self._limits.max_options_bytes) if raw else {}
        refuse_unknown(given, self.schema)
        own: dict[str, Any] = {name: kind.read(name, given[name]) for name, kind in self._own.items() if name in given}
        timeout_ms = own.pop("timeout_ms", None)
        self._glossaries.check(own.get("glossary"))
        source, target = own.get("source_language"), own.get("target_language")
        languages = self._languages.tokens(source, target)
        task_prefix, usual = chosen_task(self._tasks, self.defaults, own.pop("task", None), own.pop("task_prefix", None))
        decoding = self._decoding({name: given[name] for name in given if name not in self._own}, usual)
        if decoding.sampling and own.get("glossary") is not None:
            raise InvalidRequest("sampling can't enforce the terms of a glossary; leave out one of the two")
        return RequestOptions(
            decoding=languages.apply(decoding),
            usual=languages.apply(usual),
            language_pair=self._languages.pair(source, target),
            task_prefix=task_prefix,
            timeout_s=None if timeout_ms is None else timeout_ms / 1000,
            language_tokens=languages,
            named=frozenset(given),
            **{**own, "request_id": own.get("request_id") or ""},
        )

    def _decoding(self, given: Mapping[str, object], usual: DecodingOptions) -> DecodingOptions:
        """The search options; those beyond the limits of this server or model are refused, never silently reduced."""
        if not given and usual is self.defaults:
            return usual
        options = from_mapping(given, usual) if given else usual
        if options.beam_size > self._limits.max_beam_size:
            raise InvalidRequest(
                f"beam_size={options.beam_size} is more than this server allows ({self._limits.max_beam_size}); "
                "start it with --max-beam-size to raise the limit"
            )
        longest = self._dimensions.max_target_tokens
        if options.max_length > max(longest, self.defaults.max_length):
            raise InvalidRequest(f"max_length={options.max_length} is more than the model can generate ({longest} tokens)")
        check_tokens(options, self._dimensions.target_vocabulary)
        return options


def parse_object(raw: bytes, name: str, max_bytes: int) -> dict[str, Any]:
    """The JSON object in the tensor `name`; its size is checked before it is parsed, its values are not checked."""
    if len(raw) > max_bytes:
        raise InvalidRequest(f"{name} has {len(raw)} bytes; this server takes {max_bytes}")
    try:
        parsed = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name} is not UTF-8") from None
    except (ValueError, RecursionError):
        raise InvalidRequest(f'{name} is not JSON; it must be an object such as {{"beam_size": 4}}') from None
    if not isinstance(parsed, dict):
        raise InvalidRequest(f'{name} must be a JSON object such as {{"beam_size": 4}}')
    return parsed


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("a JSON object has the same name twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise InvalidRequest(f"a number in the JSON has {len(digits)} digits")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not a number that JSON has")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)
