"""The options of a search: one frozen dataclass, validated when it is made.

`DECODING_OPTIONS` has the type, range and length of each option; how options depend on each other is checked after that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dragoman.errors import InvalidRequest
from dragoman.search.option_types import (
    Boolean,
    Choice,
    Integer,
    Number,
    OptionType,
    Phrases,
    Token,
    TokenList,
    TokenLists,
    refuse_unknown,
)

__all__ = ["DECODING_OPTIONS", "DecodingOptions", "EarlyStopping", "from_mapping"]

EarlyStopping = Literal["heuristic", "first", "never"]
"""When a beam search is done: Hugging Face calls these False, True and "never"."""

_MANY = 2**31
"""More than any model, server or vocabulary has."""

DECODING_OPTIONS: Mapping[str, OptionType] = {
    "beam_size": Integer(1, _MANY),
    "num_hypotheses": Integer(1, _MANY),
    "length_penalty": Number(-8, 8),
    "early_stopping": Choice(get_args(EarlyStopping)),
    "max_length": Integer(1, _MANY),
    "min_length": Integer(0, _MANY),
    "no_repeat_ngram_size": Integer(0, _MANY),
    "repetition_penalty": Number(1, 100),
    "bad_words": TokenLists(most=1024, most_each=512),
    "phrases": Phrases(most=64, most_alternatives=4, most_each=64),
    "terms": Phrases(most=64, most_alternatives=4, most_each=64),
    "decoder_start": Token(),
    "forced_bos": Token(),
    "forced_eos": Token(),
    "prefix": TokenList(most=4096),
    "sampling": Boolean(),
    "temperature": Number(0.01, 100),
    "top_k": Integer(0, _MANY),
    "top_p": Number(0, 1, above=True),
    "seed": Integer(0, 2**63 - 1),
}


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """Options of one request; the defaults are greedy search.

    The meaning of each is that of Hugging Face `generate`. `max_length` and `min_length` count target tokens
    with the end token and without the start token and the prefix. `decoder_start` replaces the model's own start token.
    `phrases` must occur in the answer, one alternative of each (constrained beam search); `terms` as whole words.
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
    phrases: tuple[tuple[tuple[int, ...], ...], ...] = ()
    terms: tuple[tuple[tuple[int, ...], ...], ...] = ()
    decoder_start: int | None = None
    forced_bos: int | None = None
    forced_eos: int | None = None
    prefix: tuple[int, ...] = ()
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in DECODING_OPTIONS.items():
            object.__setattr__(self, name, kind.read(name, getattr(self, name)))
        if self.num_hypotheses > self.beam_size:
            raise InvalidRequest(f"num_hypotheses={self.num_hypotheses} must be between 1 and beam_size={self.beam_size}")
        if self.min_length > self.max_length:
            raise InvalidRequest(f"min_length={self.min_length} must be between 0 and max_length={self.max_length}")
        if self.sampling and self.beam_size > 1:
            raise InvalidRequest(f"sampling with beam_size={self.beam_size} is not supported; use beam_size=1")
        if self.must_occur and self.beam_size == 1:
            raise InvalidRequest("phrases that must occur need a beam; use beam_size=2 or more")

    @property
    def must_occur(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Of each phrase and term its alternatives."""
        return (*self.phrases, *self.terms) if self.terms else self.phrases


def from_mapping(values: Mapping[str, object], defaults: DecodingOptions) -> DecodingOptions:
    """`defaults` with `values` over them; an unknown name, a wrong type or an impossible value is an InvalidRequest."""
    refuse_unknown(values, DECODING_OPTIONS)
    return dataclasses.replace(defaults, **values)  # type: ignore[arg-type]
