"""What a request may ask of the search: one frozen dataclass, validated when it is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dragoman.errors import InvalidRequest

__all__ = ["DecodingOptions", "EarlyStopping", "from_mapping"]

EarlyStopping = Literal["heuristic", "first", "never"]
"""When a beam search is done: Hugging Face calls these False, True and "never"."""


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """Options of one request; the defaults are greedy search as the model card asks for nothing else.

    The meaning of each is that of Hugging Face `generate`. `max_length` and `min_length` count target tokens
    with the end token and without the start token and the prefix.
    """

    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = "heuristic"
    max_length: int = 128
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    bad_words: tuple[tuple[int, ...], ...] = ()
    forced_bos: int | None = None
    forced_eos: int | None = None
    prefix: tuple[int, ...] = ()
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise InvalidRequest(problem)


def from_mapping(values: Mapping[str, object], defaults: DecodingOptions) -> DecodingOptions:
    """`defaults` with `values` over them; an unknown name or a wrong type is an InvalidRequest."""
    known = {field.name for field in dataclasses.fields(DecodingOptions)}
    for name in values:
        if name not in known:
            raise InvalidRequest(f"unknown option {name!r}; known are {', '.join(sorted(known))}")
    try:
        return dataclasses.replace(defaults, **{name: _typed(name, value) for name, value in values.items()})  # type: ignore[arg-type]
    except TypeError as error:  # pragma: no cover - _typed has refused everything dataclasses would
        raise InvalidRequest(str(error)) from error


_WHOLE = {"beam_size", "num_hypotheses", "max_length", "min_length", "no_repeat_ngram_size", "top_k", "seed"}
_REAL = {"length_penalty", "repetition_penalty", "temperature", "top_p"}
_TOKEN_OR_NONE = {"forced_bos", "forced_eos"}


def _typed(name: str, value: object) -> object:
    if name in _WHOLE and _is_whole(value):
        return value
    if name in _REAL and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if name in _TOKEN_OR_NONE and (value is None or _is_whole(value)):
        return value
    if name == "sampling" and isinstance(value, bool):
        return value
    if name == "early_stopping" and isinstance(value, str):
        return value
    if name == "prefix" and isinstance(value, (list, tuple)) and all(map(_is_whole, value)):
        return tuple(value)
    if (
        name == "bad_words"
        and isinstance(value, (list, tuple))
        and all(isinstance(word, (list, tuple)) and word and all(map(_is_whole, word)) for word in value)
    ):
        return tuple(tuple(word) for word in value)
    raise InvalidRequest(f"option {name}={_short(value)} has the wrong type")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _problems(options: DecodingOptions) -> list[str]:
    """Everything impossible about `options`, whatever the server's limits are."""
    found = []

    def must(holds: bool, message: str) -> None:
        if not holds:
            found.append(message)

    o = options
    must(o.beam_size >= 1, f"beam_size={o.beam_size} must be at least 1")
    must(
        1 <= o.num_hypotheses <= o.beam_size or (o.sampling and o.num_hypotheses == 1),
        f"num_hypotheses={o.num_hypotheses} must be between 1 and beam_size={o.beam_size}",
    )
    must(abs(o.length_penalty) <= 8, f"length_penalty={o.length_penalty} must be between -8 and 8")
    must(
        o.early_stopping in get_args(EarlyStopping),
        f"early_stopping={o.early_stopping!r} must be one of {', '.join(get_args(EarlyStopping))}",
    )
    must(o.max_length >= 1, f"max_length={o.max_length} must be at least 1")
    must(0 <= o.min_length <= o.max_length, f"min_length={o.min_length} must be between 0 and max_length={o.max_length}")
    must(o.no_repeat_ngram_size >= 0, f"no_repeat_ngram_size={o.no_repeat_ngram_size} must not be negative")
    must(
        1.0 <= o.repetition_penalty <= 100.0,
        f"repetition_penalty={o.repetition_penalty} must be between 1 and 100",
    )
    must(
        0.01 <= o.temperature <= 100.0,
        f"temperature={o.temperature} must be between 0.01 and 100; leave sampling off for greedy search",
    )
    must(o.top_k >= 0, f"top_k={o.top_k} must not be negative (0 keeps the whole vocabulary)")
    must(0 < o.top_p <= 1, f"top_p={o.top_p} must be above 0 and at most 1")
    must(not (o.sampling and o.beam_size > 1), f"sampling with beam_size={o.beam_size} is not supported; use beam_size=1")
    must(0 <= o.seed < 2**63, f"seed={o.seed} must be between 0 and 2^63-1")
    ids = [*o.prefix, *(token for word in o.bad_words for token in word)]
    ids += [token for token in (o.forced_bos, o.forced_eos) if token is not None]
    must(all(token >= 0 for token in ids), "token ids in prefix, bad_words, forced_bos and forced_eos must not be negative")
    return found
