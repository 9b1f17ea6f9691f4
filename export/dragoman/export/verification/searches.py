"""The searches of a verification: greedy and beam search, into each of the target languages that are verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.bundle.languages import NO_LANGUAGE_TOKENS, LanguageTokens
from dragoman.export.verification.corpus import Corpus
from dragoman.export.verification.languages import VerifiedLanguages, VerifiedTarget
from dragoman.search.options import DecodingOptions

__all__ = ["Search", "Source", "planned_searches"]

MAX_LENGTH = 96
"""Target tokens after which both sides stop; an untrained model would go on to its limit."""


@dataclass(frozen=True, slots=True)
class Source:
    """One sentence, as text and as the ids both sides get."""

    text: str
    ids: tuple[int, ...]
    references: tuple[str, ...]
    language: LanguageTokens = NO_LANGUAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Search:
    """How sentences are decoded, and into which language."""

    options: DecodingOptions
    sources: tuple[Source, ...]  # by length: batches of similar ones have little padding
    language: LanguageTokens


def planned_searches(
    corpus: Corpus,
    languages: VerifiedLanguages,
    targets: Sequence[VerifiedTarget],
    generation: DecodingOptions,
    max_source_tokens: int,
) -> dict[str, Search]:
    """Greedy and beam search, each into another language where the model has several, or into each that has a list."""
    short = dataclasses.replace(generation, max_length=min(generation.max_length, MAX_LENGTH), num_hypotheses=1)
    beams = short.beam_size if short.beam_size > 1 else 4
    have_lists = any(target.tokens.shortlist for target in targets)
    searches = {}
    for at, (name, width) in enumerate({"greedy": 1, f"beam {beams}": beams}.items()):
        for target in targets if have_lists else [targets[at % len(targets)]]:
            encoded = zip(corpus.sentences, languages.encode(corpus.sentences, target), corpus.references, strict=True)
            sources = [Source(text, ids[:max_source_tokens], given, target.tokens) for text, ids, given in encoded]
            searches[f"{name} to {target.code}" if target.code else name] = Search(
                target.tokens.apply(dataclasses.replace(short, beam_size=width)),
                tuple(sorted(sources, key=lambda source: len(source.ids))),
                target.tokens,
            )
    return searches
