"""The languages that a multilingual model is verified with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.bundle.languages import (
    NO_LANGUAGE_TOKENS,
    Language,
    LanguageResolver,
    LanguageSide,
    LanguageTokens,
    resolver_of,
)
from dragoman.bundle.tokenizer import Tokenizer, literal_tokens_of
from dragoman.errors import InvalidRequest
from dragoman.export.checkpoint import Checkpoint

__all__ = ["VerifiedLanguages", "VerifiedTarget", "requested_languages"]

USUAL_SOURCES = ("en",)
USUAL_TARGETS = ("de", "fr", "ja", "en")
"""The sentences that come with dragoman are English."""
TARGETS = 2


@dataclass(frozen=True, slots=True)
class VerifiedTarget:
    """A target language, by the model's own code; "" for a model without language tokens."""

    code: str = ""
    tokens: LanguageTokens = NO_LANGUAGE_TOKENS


@dataclass(frozen=True, slots=True)
class VerifiedLanguages:
    """The pairs that sentences are translated between, with the tokens that requests of these languages have."""

    tokenizer: Tokenizer
    languages: LanguageResolver

    def targets(self, *, is_one: bool = False) -> tuple[VerifiedTarget, ...]:
        """Those with a shortlist, else the default and usual ones; just the first where `is_one`."""
        side, source = self.languages.target, self._source()
        if not any(language.token is not None for language in side.languages):
            return (VerifiedTarget(),)
        with_lists = tuple(language for language in side.languages if language.shortlist)
        chosen = with_lists or tuple(dict.fromkeys(self._usual(side, source)))[: 1 if is_one else TARGETS]
        return tuple(
            VerifiedTarget(one.own_code, self.languages.tokens(None if source is None else source.own_code, one.own_code))
            for one in chosen
        )

    def encode(self, sentences: Sequence[str], target: VerifiedTarget) -> list[tuple[int, ...]]:
        """The sources of requests into this language."""
        return [target.tokens.wrap(self.tokenizer.encode(text)) for text in sentences]

    def _source(self) -> Language | None:
        side = self.languages.source
        if not any(language.token is not None for language in side.languages):
            return None
        return side.default or next(_known(side, USUAL_SOURCES), side.languages[0])

    @staticmethod
    def _usual(side: LanguageSide, source: Language | None) -> Iterator[Language]:
        if side.default is not None:
            yield side.default
        yield from (one for one in _known(side, USUAL_TARGETS) if one != source)
        yield from (one for one in side.languages if one.token is not None and one != source)
        yield from side.languages


def requested_languages(checkpoint: Checkpoint, tokenizer: Tokenizer) -> LanguageResolver:
    """What requests of the finished bundle can choose from."""
    model = checkpoint.card, checkpoint.languages, checkpoint.generation
    return resolver_of(*model, literal_tokens_of(tokenizer), tuple(checkpoint.shortlists))


def _known(side: LanguageSide, codes: Sequence[str]) -> Iterator[Language]:
    for code in codes:
        try:
            found = side.find(code)
        except InvalidRequest:
            continue
        if found is not None and found.token is not None:
            yield found
