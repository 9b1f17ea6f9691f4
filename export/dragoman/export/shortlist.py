"""The tokens that a model may generate, from a text in its target language, or from one text per target language."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.errors import InvalidRequest, UsageError
from dragoman.export.checkpoint import Checkpoint
from dragoman.export.verification.languages import requested_languages

__all__ = ["check_size", "parse_shortlists", "read_shortlist", "read_shortlists", "with_shortlists"]

_NAMED = re.compile(r"([A-Za-z0-9_-]{1,64})=(.+)", re.DOTALL)


def parse_shortlists(values: Sequence[str]) -> dict[str | None, Path]:
    """`FILE`, or `LANGUAGE=FILE` any number of times, as the command line has them."""
    texts: dict[str | None, Path] = {}
    for value in values:
        named = _NAMED.fullmatch(value)
        language, path = named.groups() if named else (None, value)
        if language in texts:
            raise UsageError(
                f"--shortlist is given twice{f' for {language}' if language else ''}; put both texts in one file"
            )
        texts[language] = Path(path)
    if None in texts and len(texts) > 1:
        raise UsageError("--shortlist is one FILE for all languages, or LANGUAGE=FILE for each of some; both were given")
    return texts


def with_shortlists(
    checkpoint: Checkpoint, tokenizer: Tokenizer, text: Path | None, texts: Mapping[str, Path]
) -> Checkpoint:
    """The checkpoint with the list of one text for all requests, or those of the texts for single target languages."""
    if text is not None:
        return replace(checkpoint, shortlist=read_shortlist(text, tokenizer, checkpoint))
    lists = read_shortlists(texts, tokenizer, checkpoint)
    if only := lists.get(None):  # the model has one target language
        return replace(checkpoint, shortlist=only)
    by_language = {code: tokens for code, tokens in lists.items() if code is not None}
    check_size(by_language, checkpoint.config.target_vocabulary)
    return replace(checkpoint, shortlists=by_language)


def read_shortlist(path: Path, tokenizer: Tokenizer, checkpoint: Checkpoint) -> tuple[int, ...]:
    """The tokens of the text, the special ones, and all single characters, so that every word can still be spelt."""
    languages = checkpoint.languages
    first = languages.tokens.values() if languages is not None and languages.target_place == "forced_bos" else ()
    return _listed(path, tokenizer, _spelling(tokenizer, checkpoint) | frozenset(first))


def read_shortlists(
    texts: Mapping[str, Path], tokenizer: Tokenizer, checkpoint: Checkpoint
) -> dict[str | None, tuple[int, ...]]:
    """The same for each language, by the model's own code; None where the model has no other."""
    languages = requested_languages(checkpoint, tokenizer)
    spelling, lists = _spelling(tokenizer, checkpoint), dict[str | None, tuple[int, ...]]()
    for code, path in texts.items():
        own_code, first_token = _language(languages, code)
        if own_code in lists:
            raise UsageError(f"--shortlist {code}={path}: this language ({own_code}) has a list already")
        lists[own_code] = _listed(path, tokenizer, spelling if first_token is None else spelling | {first_token})
    return lists


def check_size(lists: Mapping[str, Sequence[int]], vocabulary: int) -> None:
    """UsageError when the rows that only one list has would be more than the vocabulary."""
    shared = set.intersection(*map(set, lists.values())) if len(lists) > 1 else set[int]()
    rows = len(shared) + sum(len(one) - len(shared) for one in lists.values())
    if rows > vocabulary:
        raise UsageError(
            f"--shortlist: the lists of {len(lists)} languages have {rows:,} tokens together, more than the vocabulary "
            f"({vocabulary:,}); give lists to fewer languages, or less text"
        )


def _language(languages: LanguageResolver, code: str) -> tuple[str | None, int | None]:
    """The model's own code of a target language, and the token that its targets begin with; no code where there is no
    other language."""
    try:
        found = languages.target.find(code)
    except InvalidRequest as error:
        raise UsageError(f"--shortlist {code}=…: {error}") from None
    if found is None or found.token is None:
        if len(languages.target.languages) != 1 or found is None:
            raise UsageError(f"--shortlist {code}=…: this model has no target languages to choose from; give one FILE only")
        return None, None
    return found.own_code, found.token if languages.target.place == "forced_bos" else None


def _spelling(tokenizer: Tokenizer, checkpoint: Checkpoint) -> frozenset[int]:
    """What every list has: special tokens, and all single characters."""
    tokens, generation = checkpoint.tokens, checkpoint.generation
    special = {*tokens.ends, tokens.unknown, generation.forced_bos, generation.forced_eos}
    spelt = {token for token in range(checkpoint.config.target_vocabulary) if len(tokenizer.decode([token])) == 1}
    return frozenset(token for token in special | spelt if token is not None)


def _listed(path: Path, tokenizer: Tokenizer, always: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(always | {token for line in _lines(path) for token in tokenizer.encode_target(line)}))


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"--shortlist {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--shortlist {path} is not UTF-8 (byte {error.start})") from error
    if not lines:
        raise UsageError(f"--shortlist {path} is empty; put sentences in the target language there, one on each line")
    return lines
