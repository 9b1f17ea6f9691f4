"""What a request asks for, from its bytes: everything is checked here, and an error says what is wrong and what to do."""

from __future__ import annotations

import itertools
import json
import secrets
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal, cast, get_args

from dragoman.bundle.manifest import Dimensions
from dragoman.errors import InvalidRequest
from dragoman.search.options import DecodingOptions, from_mapping
from dragoman.wire import Limits

__all__ = ["Admission", "LongInput", "Priority", "Terms", "read_texts"]

Priority = Literal["interactive", "batch"]
LongInput = Literal["split", "refuse"]

_ALLOWED_CONTROLS = frozenset("\t\n\r\x85")
_MAX_REQUEST_ID = 128
_MOST_CACHED_TOKENS = 256
_MOST_KNOWN_BYTES = 1024
_DECODING = frozenset(field.name for field in fields(DecodingOptions))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a caller asks for beside the text."""

    decoding: DecodingOptions
    request_id: str
    timeout_s: float | None = None
    priority: Priority = "interactive"
    prefix_text: str = ""
    long_input: LongInput = "split"
    cache: bool = True

    @property
    def may_be_cached(self) -> bool:
        """Long lists of tokens would fill the response cache with questions instead of answers."""
        listed = len(self.decoding.prefix) + sum(map(len, self.decoding.bad_words)) + len(self.prefix_text)
        return self.cache and listed <= _MOST_CACHED_TOKENS


class Admission:
    """What this server takes for this model."""

    def __init__(self, model: str, dimensions: Dimensions, defaults: DecodingOptions, limits: Limits) -> None:
        self.model, self.dimensions, self.defaults, self.limits = model, dimensions, defaults, limits
        self._mark, self._numbers = secrets.token_hex(4), itertools.count()  # no two requests without an id get the same one
        # Callers send the same few options again and again; checking them costs more than finding them.
        self._decoding = lru_cache(maxsize=256)(self._read_decoding)
        self._known = lru_cache(maxsize=256)(self._read)

    def read_options(self, raw: bytes) -> Terms:
        """The options of a request; InvalidRequest names the first that can't be met."""
        is_known = len(raw) <= _MOST_KNOWN_BYTES and b"request_id" not in raw  # others are seldom the same twice
        terms = self._known(raw) if is_known else self._read(raw)
        if terms.request_id:
            return terms
        asked = (terms.timeout_s, terms.priority, terms.prefix_text, terms.long_input, terms.cache)
        return Terms(terms.decoding, f"{self._mark}{next(self._numbers):08x}", *asked)

    def _read(self, raw: bytes) -> Terms:
        """As the caller wrote them: without a `request_id` where there is none."""
        options = self._parsed(raw)
        asked = options.pop("model", None)
        if asked not in (None, self.model):
            raise InvalidRequest(f"there is no model {_short(asked)} here; this server has {self.model}")
        request_id = _request_id(options.pop("request_id", None))
        timeout_s = self._timeout_s(options.pop("timeout_ms", None))
        priority = cast(Priority, _one_of("priority", options.pop("priority", "interactive"), get_args(Priority)))
        prefix_text = _text("prefix_text", options.pop("prefix_text", ""))
        long_input = cast(LongInput, _one_of("long_input", options.pop("long_input", "split"), get_args(LongInput)))
        cache = _boolean("cache", options.pop("cache", True))
        decoding = self._decoding(json.dumps(options, sort_keys=True)) if options else self.defaults
        return Terms(decoding, request_id, timeout_s, priority, prefix_text, long_input, cache)

    def _read_decoding(self, text: str) -> DecodingOptions:
        """The options of the search that the JSON object `text` asks for."""
        options = json.loads(text)
        for name in options:
            if name not in _DECODING:
                raise InvalidRequest(f"unknown option {_short(name)}; known are {', '.join(sorted(_DECODING | _BESIDE))}")
        return self._possible(from_mapping(options, self.defaults))

    def _parsed(self, raw: bytes) -> dict[str, object]:
        if len(raw) > self.limits.max_options_bytes:
            raise InvalidRequest(f"OPTIONS has {len(raw)} bytes; this server takes {self.limits.max_options_bytes}")
        try:
            parsed = json.loads(raw.decode("utf-8")) if raw else {}
        except UnicodeDecodeError:
            raise InvalidRequest("OPTIONS is not UTF-8") from None
        except (ValueError, RecursionError):
            raise InvalidRequest('OPTIONS is not JSON; it must be an object such as {"beam_size": 4}') from None
        if not isinstance(parsed, dict):
            raise InvalidRequest('OPTIONS must be a JSON object such as {"beam_size": 4}')
        return parsed

    def _timeout_s(self, value: object) -> float | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= self.limits.max_timeout_ms:
            raise InvalidRequest(f"timeout_ms={_short(value)} must be above 0 and at most {self.limits.max_timeout_ms}")
        return value / 1000

    def _possible(self, options: DecodingOptions) -> DecodingOptions:
        """Options that this server and this model can meet; more than that is refused, never quietly cut."""
        if options.beam_size > self.limits.max_beam_size:
            raise InvalidRequest(
                f"beam_size={options.beam_size} is more than this server allows ({self.limits.max_beam_size}); "
                "start it with --max-beam-size to raise the limit"
            )
        longest = self.dimensions.max_target_tokens
        if options.max_length > max(longest, self.defaults.max_length):
            raise InvalidRequest(f"max_length={options.max_length} is more than the model can write ({longest} tokens)")
        ids = [*options.prefix, *(token for word in options.bad_words for token in word)]
        ids += [token for token in (options.forced_bos, options.forced_eos) if token is not None]
        for token in ids:
            if token >= self.dimensions.target_vocabulary:
                raise InvalidRequest(f"token {token} is not in the vocabulary of {self.dimensions.target_vocabulary}")
        return options


_BESIDE = frozenset(("model", "request_id", "timeout_ms", "priority", "prefix_text", "long_input", "cache"))


def read_texts(raw: Sequence[bytes], limits: Limits) -> list[str]:
    """The texts of a request; InvalidRequest says which one is wrong and why."""
    if not raw:
        raise InvalidRequest("TEXT is empty: send at least one text")
    if len(raw) > limits.max_texts:
        raise InvalidRequest(f"{len(raw)} texts are too many; this server takes {limits.max_texts}: send several requests")
    return [_readable(each, f"text {number}" if len(raw) > 1 else "the text", limits) for number, each in enumerate(raw)]


def _readable(raw: bytes, which: str, limits: Limits) -> str:
    if len(raw) > limits.max_text_bytes:
        raise InvalidRequest(f"{which} has {len(raw)} bytes; this server takes {limits.max_text_bytes}: send it in pieces")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{which} is not UTF-8: the bytes at {error.start} can't be read") from None
    if not text.strip():
        raise InvalidRequest(f"{which} is empty")
    _refuse_controls(text, which)
    return text


def _refuse_controls(text: str, which: str) -> None:
    if text.isprintable():
        return
    for position, character in enumerate(text):
        if unicodedata.category(character) == "Cc" and character not in _ALLOWED_CONTROLS:
            raise InvalidRequest(f"{which} has the control character U+{ord(character):04X} at {position}; remove it")


def _request_id(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_REQUEST_ID or not value.isprintable():
        raise InvalidRequest(f"request_id must be 1 to {_MAX_REQUEST_ID} printable characters")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"option {name}={_short(value)} must be a text")
    _refuse_controls(value, name)
    return value


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"option {name}={_short(value)} must be true or false")
    return value


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise InvalidRequest(f"option {name}={_short(value)} must be one of {', '.join(choices)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
