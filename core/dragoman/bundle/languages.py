"""The languages of a bundle, and how the languages of a request become tokens.

A request names languages by BCP 47 or by the model's own codes. What the model needs for that is the bundle's business:
a token before the source (`>>deu<<`), one after it, a forced first target token or another start token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dragoman.bundle.language_codes import LanguageTag, is_language_group, parse_tag
from dragoman.bundle.manifest import ModelCard
from dragoman.errors import InvalidRequest
from dragoman.search.option_types import shown

__all__ = ["NO_LANGUAGE_TOKENS", "Language", "LanguageTokens", "Languages", "marian_languages"]

_MOST_LISTED = 40


@dataclass(frozen=True, slots=True)
class LanguageTokens:
    """What the chosen languages add to a source and to its decoding; None leaves it to the model's own settings."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    forced_bos: int | None = None
    decoder_start: int | None = None

    def wrap(self, source: Iterable[int]) -> tuple[int, ...]:
        """A source with the tokens around it; `source` has its end token already."""
        return (*self.source_prefix, *source, *self.source_suffix)

    def __len__(self) -> int:
        """How many tokens a source gets in addition to its own."""
        return len(self.source_prefix) + len(self.source_suffix)


NO_LANGUAGE_TOKENS = LanguageTokens()


@dataclass(frozen=True, slots=True)
class Language:
    """A language of a bundle: its BCP 47 tag, the model's own code for it, and the token that chooses it (or None)."""

    tag: LanguageTag
    own_code: str
    token: int | None = None

    def __str__(self) -> str:
        return str(self.tag)


Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Languages:
    """What a bundle translates from and to.

    `target_in_source`: the target language's token stands before the source (Marian). A side that is `open` is a language
    group without tokens of its own (`gem`): which languages it has is not known, so any is accepted.
    """

    sources: tuple[Language, ...] = ()
    targets: tuple[Language, ...] = ()
    target_in_source: bool = False
    open_sides: frozenset[Side] = frozenset()

    @property
    def source_codes(self) -> tuple[str, ...]:
        """BCP 47, in the bundle's order."""
        return tuple(map(str, self.sources))

    @property
    def target_codes(self) -> tuple[str, ...]:
        """BCP 47, in the bundle's order."""
        return tuple(map(str, self.targets))

    def tokens(self, source: str | None, target: str | None) -> LanguageTokens:
        """What the languages of a request need; InvalidRequest lists what there is when one of them is not there."""
        self._find("source", source)
        wanted = self._find("target", target)
        if wanted is None or wanted.token is None:
            return NO_LANGUAGE_TOKENS
        if self.target_in_source:
            return LanguageTokens(source_prefix=(wanted.token,))
        return LanguageTokens(forced_bos=wanted.token)

    def leading_token(self, text: str) -> str:
        """The language token that `text` begins with, with the white space after it; "" without one.

        Only models that have such tokens read them: anywhere else `>>fra<<` is text like any other.
        """
        if not self.target_in_source or not text.startswith(">>"):
            return ""
        code, closed, rest = text[:_LONGEST_LEADING_TOKEN].partition("<<")
        if not closed or any(character.isspace() for character in code):
            return ""
        return text[: len(code) + len(closed) + len(rest) - len(rest.lstrip())]

    def _find(self, side: Side, code: str | None) -> Language | None:
        if code is None:
            return None
        known = self.sources if side == "source" else self.targets
        for language in known:
            if code.lower() == language.own_code.lower():
                return language
        tag = parse_tag(code)
        if tag is None:
            raise InvalidRequest(f"{side}_language={shown(code)} is not a language code such as en, eng or en-US")
        if side in self.open_sides:
            return None
        return _closest(tag, known) or self._refuse(side, code, tag, known)

    def _refuse(self, side: Side, code: str, tag: LanguageTag, known: tuple[Language, ...]) -> Language:
        if not known:
            raise InvalidRequest(
                f"{side}_language={shown(code)}: this model does not say which languages it has; leave it out"
            )
        variants = [language for language in known if language.tag.language == tag.language]
        listed = ", ".join(map(str, variants or known[:_MOST_LISTED]))
        if variants:
            raise InvalidRequest(f"{side}_language={shown(code)} could be several languages of this model: {listed}")
        more = len(known) - _MOST_LISTED
        raise InvalidRequest(
            f"{side}_language={shown(code)} is not a {side} language of this model; it has {listed}"
            + (f" and {more} more" if more > 0 else "")
        )


_LONGEST_LEADING_TOKEN = 64


def _closest(tag: LanguageTag, known: tuple[Language, ...]) -> Language | None:
    """The language that `tag` means: the same, or else the only one left when region and then script are ignored."""
    for kept in (
        [one for one in known if one.tag == tag],
        [one for one in known if one.tag[:2] == tag[:2] and not one.tag.region],
        [one for one in known if one.tag.language == tag.language and not (one.tag.script or one.tag.region)],
        [one for one in known if one.tag.language == tag.language and _compatible(one.tag, tag)],
    ):
        if len({one.token for one in kept}) == 1:
            return kept[0]
    return None


def _compatible(ours: LanguageTag, asked: LanguageTag) -> bool:
    """Whether neither names what contradicts the other: `pt` may be `pt-BR`, but `zh-Hant` is not `zh-Hans`."""
    return all(not one or not other or one == other for one, other in zip(ours[1:], asked[1:], strict=True))


def marian_languages(model: ModelCard, language_tokens: Mapping[str, int]) -> Languages:
    """The languages of a Marian model: those of its `>>deu<<` tokens, or else the one pair that the manifest names."""
    sources, open_source = _named(model.source_language)
    if not language_tokens:
        targets, open_target = _named(model.target_language)
        return Languages(sources, targets, open_sides=_open(open_source, open_target))
    found = []
    for piece, token in language_tokens.items():
        own_code = piece.removeprefix(">>").removesuffix("<<")
        found.append(Language(parse_tag(own_code) or LanguageTag(own_code), own_code, token))
    found.sort(key=lambda language: language.own_code)
    return Languages(sources, tuple(found), target_in_source=True, open_sides=_open(open_source, False))


def _named(codes: str | None) -> tuple[tuple[Language, ...], bool]:
    """The languages that the manifest names, several with `+` between them, and whether they are a group."""
    named = [(code, parse_tag(code)) for code in (codes or "").split("+") if code]
    languages = tuple(Language(tag, code) for code, tag in named if tag is not None and not is_language_group(tag))
    return languages, any(tag is not None and is_language_group(tag) for _, tag in named)


def _open(source: bool, target: bool) -> frozenset[Side]:
    sides: list[Side] = []
    if source:
        sides.append("source")
    if target:
        sides.append("target")
    return frozenset(sides)
