"""The options of a call: one typed set of keyword arguments, checked here and written as the wire's OPTIONS."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypedDict, TypeVar, cast, get_args

from dragoman.bundle.records import Segmentation
from dragoman.client.rendering import OutputFormat
from dragoman.client.windows import Window
from dragoman.errors import InvalidRequest
from dragoman.search.options import DecodingOptions, EarlyStopping, from_mapping
from dragoman.wire import MODEL, OPTIONS, TARGET, TEXT

__all__ = [
    "CheckedOptions",
    "FileOptions",
    "LineOptions",
    "RequestOptions",
    "ScoreOptions",
    "TextFormat",
    "check_options",
    "check_score_options",
    "encode_text",
    "shows",
]


TextFormat = Literal["text", "html", "xml", "markdown"]


class RequestOptions(TypedDict, total=False):
    """Keyword arguments of every translating call; what is left out (or None) is the model's own default."""

    beam_size: int | None
    num_hypotheses: int | None
    length_penalty: float | None
    early_stopping: EarlyStopping | None
    max_length: int | None
    min_length: int | None
    no_repeat_ngram_size: int | None
    repetition_penalty: float | None
    bad_words: Sequence[Sequence[int]] | None
    decoder_start: int | None
    forced_bos: int | None
    forced_eos: int | None
    prefix: Sequence[int] | None
    prefix_text: str | None
    sampling: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    source_language: str | None
    target_language: str | None
    task: str | None
    task_prefix: str | None
    split: Segmentation | None
    alignment: bool | None
    alternatives_at: Sequence[int] | None
    num_alternatives: int | None
    format: TextFormat | None
    placeholders: bool | None
    capitals: bool | None
    translate_attributes: bool | None
    glossary: str | Sequence[tuple[str, str]] | Mapping[str, str] | None
    on_suspicion: Literal["ignore", "report", "retry"] | None
    priority: Literal["interactive", "batch"] | None
    cache: bool | None
    request_id: str | None
    timeout_s: float | None


class ScoreOptions(TypedDict, total=False):
    """Keyword arguments of `score`: nothing is searched there."""

    decoder_start: int | None
    forced_bos: int | None
    source_language: str | None
    target_language: str | None
    task: str | None
    task_prefix: str | None
    priority: Literal["interactive", "batch"] | None
    request_id: str | None
    timeout_s: float | None


class LineOptions(RequestOptions, total=False):
    """Those of a long job. `window` is the number of requests in flight."""

    window: Window | None


class FileOptions(LineOptions, total=False):
    """Those of a file. `restart` drops what an interrupted run left; `on_progress` gets the number of lines done.

    `document`: translate it whole instead of line by line; .html, .xml, .md, .srt and .vtt are documents by default.
    """

    output_format: OutputFormat
    restart: bool
    document: bool | None
    on_progress: Callable[[int], None] | None


_DECODING = frozenset(spec.name for spec in fields(DecodingOptions))
_SENT = frozenset(RequestOptions.__annotations__) - {"timeout_s"}
_CHOICES = {
    "split": get_args(Segmentation),
    "format": get_args(TextFormat),
    "on_suspicion": ("ignore", "report", "retry"),
    "priority": ("interactive", "batch"),
}


_TEXTUAL = ("source_language", "target_language", "task", "task_prefix", "prefix_text", "request_id")


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The options of a call, checked; `sent` are those that go over the wire. `model` names the bundle."""

    sent: dict[str, object]
    timeout_s: float
    model: str | None

    def decoding(self) -> dict[str, object]:
        """The options of the search."""
        return {name: value for name, value in self.sent.items() if name in _DECODING}

    def inputs(self, sources: list[bytes], remaining_s: float, targets: list[bytes] | None = None) -> dict[str, list[bytes]]:
        """The tensors of an attempt that has `remaining_s` left; with `targets` it scores them."""
        # Rounded up: a server must not give up on a request whose caller is still there.
        options = {**self.sent, "timeout_ms": math.ceil(remaining_s * 1000)}
        inputs = {TEXT.name: sources, OPTIONS.name: [json.dumps(options, ensure_ascii=False).encode()]}
        if targets is not None:
            inputs[TARGET.name] = targets
        if self.model is not None:
            inputs[MODEL.name] = [self.model.encode()]
        return inputs


def check_options(options: RequestOptions, model: str | None, timeout_s: float) -> CheckedOptions:
    """Check a call's options as far as possible without the server; `timeout_s` is for calls that set none."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in RequestOptions.__annotations__:
            near = difflib.get_close_matches(name, RequestOptions.__annotations__, n=1)
            raise TypeError(f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise InvalidRequest(f"{name}={given[name]!r} must be one of {', '.join(choices)}")
    for name in _TEXTUAL:
        if name in given:
            encode_text(given[name], name)
    if not _DECODING.isdisjoint(given):
        _check_decoding({name: value for name, value in given.items() if name in _DECODING})
    sent = {name: value for name, value in given.items() if name in _SENT}
    if isinstance(terms := given.get("glossary"), Mapping):
        sent["glossary"] = list(terms.items())
    if (places := given.get("alternatives_at")) is not None:
        if not isinstance(places, Sequence):
            raise InvalidRequest(f"alternatives_at={places!r} must be a list of characters of the translation")
        sent["alternatives_at"] = list(places)
    return CheckedOptions(sent, _timeout_s(given.get("timeout_s", timeout_s)), model)


def check_score_options(given: ScoreOptions) -> RequestOptions:
    """The options of a call of `score`; TypeError for those of a search, which mean nothing there."""
    for name in given:
        if name in RequestOptions.__annotations__ and name not in ScoreOptions.__annotations__:
            raise TypeError(f"score() has no option {name!r}: a target is scored as it is, nothing is searched or split")
    return cast("RequestOptions", given)


def encode_text(text: object, name: str = "the text") -> bytes:
    """`text` as UTF-8; InvalidRequest for what is not Unicode, called `name` in the error."""
    if not isinstance(text, str):
        raise InvalidRequest(f"{name}={text!r} must be a string")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{name} has a lone surrogate at character {error.start}; it is not Unicode") from None


def _check_decoding(decoding: dict[str, object]) -> None:
    """InvalidRequest for options that no server could accept.

    The model's defaults are not known here, so options are checked only against each other; where the caller gave no beam
    size or length, none is too large.
    """
    key = tuple((name, type(value), value) for name, value in decoding.items())  # the type: 1 and True are equal
    try:
        _check_once(key)
    except TypeError:  # a list among the values
        from_mapping(decoding, _UNBOUNDED_SAMPLING if decoding.get("sampling") else _UNBOUNDED)


@functools.lru_cache(maxsize=256)
def _check_once(key: tuple[tuple[str, type, object], ...]) -> None:
    """The same options come with every call of a program, and checking them is most of what a call costs: done once."""
    decoding = {name: value for name, _, value in key}
    from_mapping(decoding, _UNBOUNDED_SAMPLING if decoding.get("sampling") else _UNBOUNDED)


_UNBOUNDED = DecodingOptions(beam_size=2**31, max_length=2**31)
_UNBOUNDED_SAMPLING = DecodingOptions(max_length=2**31)


def _timeout_s(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise InvalidRequest(f"timeout_s={value!r} must be a number of seconds above 0")
    return float(value)


_F = TypeVar("_F", bound=Callable[..., object])


def shows(options: type) -> Callable[[_F], _F]:
    """Lets `help()` and editors show the options as keyword arguments instead of `**options`."""

    def decorate(method: _F) -> _F:
        signature = inspect.signature(method)
        kept = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=str(kind.__forward_arg__))
            for name, kind in options.__annotations__.items()
        ]
        method.__signature__ = signature.replace(parameters=[*kept, *named])  # type: ignore[attr-defined]
        return method

    return decorate
