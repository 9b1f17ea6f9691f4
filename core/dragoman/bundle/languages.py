"""How the languages of a request become tokens.

A request names languages by BCP 47 or by the model's own codes. What the model needs for that is the bundle's business:
a token before or after the source (`>>deu<<`, `eng_Latn`), a forced first target token or another start token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.bundle.language_codes import OTHER_NAMES, LanguageTag, is_language_group, parse_tag, with_usual_script
from dragoman.bundle.manifest import Languages, Manifest, ModelCard
from dragoman.errors import InvalidRequest
from dragoman.search import DecodingOptions
from dragoman.search.option_types import shown

__all__ = [
    "NO_LANGUAGE_TOKENS",
    "Language",
    "LanguageResolver",
    "LanguageSide",
    "LanguageTokens",
    "language_resolver",
    "resolver_of",
]

_MOST_LISTED = 40
_LONGEST_LEADING_TOKEN = 64


@dataclass(frozen=True, slots=True)
class LanguageTokens:
    """What the chosen languages add to a source and to its decoding; None leaves it to the model's own settings.

    `shortlist`: the number of the target language's list of tokens in the graphs; 0 stands for all tokens.
    """

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    forced_bos: int | None = None
    decoder_start: int | None = None
    shortlist: int = 0

    def wrap(self, source: Iterable[int]) -> tuple[int, ...]:
        """A source with the tokens around it; `source` has the tokenizer's own already, such as the end token."""
        return (*self.source_prefix, *source, *self.source_suffix)

    def apply(self, options: DecodingOptions) -> DecodingOptions:
        """The options with the tokens that choose the target language."""
        forced = {"forced_bos": self.forced_bos, "decoder_start": self.decoder_start}
        chosen = {name: token for name, token in forced.items() if token is not None}
        return dataclasses.replace(options, **chosen) if chosen else options  # type: ignore[arg-type]

    def __len__(self) -> int:
        """How many tokens a source gets in addition to its own."""
        return len(self.source_prefix) + len(self.source_suffix)


NO_LANGUAGE_TOKENS = LanguageTokens()
Place = Literal["none", "before", "after", "forced_bos", "decoder_start"]
"""Where a language's token goes: nowhere, before or after the source, first in the target, or where the decoder starts."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language of a bundle: its BCP 47 tag, the model's own code for it, the token that chooses it (or None), and the
    number of its shortlist."""

    tag: LanguageTag
    own_code: str
    token: int | None = None
    shortlist: int = 0

    def __str__(self) -> str:
        return str(self.tag)


@dataclass(frozen=True, slots=True)
class LanguageSide:
    """The languages of the sources or of the targets.

    `is_open`: a language group without tokens (`gem`); which languages it has is not known, so any is accepted.
    `is_required`: without a language and without a `default` the model would not know what to do.
    """

    name: Literal["source", "target"]
    languages: tuple[Language, ...] = ()
    place: Place = "none"
    default: Language | None = None
    is_open: bool = False
    is_required: bool = False

    @property
    def codes(self) -> tuple[str, ...]:
        """BCP 47, in the bundle's order."""
        return tuple(map(str, self.languages))

    def used(self, code: str | None) -> Language | None:
        """The language of an accepted request, also if the request left out the only possible one; None when it is not
        known.
        """
        found = self.find(code)
        return self.languages[0] if found is None and code is None and len(self.languages) == 1 else found

    def find(self, code: str | None) -> Language | None:
        """The language that `code` means; InvalidRequest lists the known languages when there is no such one."""
        if code is None:
            if self.is_required and self.default is None:
                raise InvalidRequest(f"this model needs a {self.name}_language; it has {self._listed(self.languages)}")
            return self.default
        for language in self.languages:
            if code.lower() == language.own_code.lower():
                return language
        tag = parse_tag(code)
        if tag is None:
            raise InvalidRequest(f"{self.name}_language={shown(code)} is not a language code such as en, eng or en-US")
        if self.is_open:
            return None
        found = _closest(tag, self.languages)
        if found is None and (other_name := OTHER_NAMES.get(tag.language)):
            found = _closest(tag._replace(language=other_name), self.languages)
        return found or self._refuse(code, tag)

    def _refuse(self, code: str, tag: LanguageTag) -> Language:
        given = f"{self.name}_language={shown(code)}"
        if not self.languages:
            raise InvalidRequest(f"{given}: this bundle does not list its languages; leave it out")
        variants = [language for language in self.languages if language.tag.language == tag.language]
        if len(variants) > 1:
            raise InvalidRequest(f"{given} could be several languages of this model: {self._listed(variants)}")
        if variants:
            raise InvalidRequest(f"{given} is not a {self.name} language of this model; the nearest it has is {variants[0]}")
        listed = self._listed(self.languages)
        raise InvalidRequest(f"{given} is not a {self.name} language of this model; it has {listed}")

    @staticmethod
    def _listed(languages: Iterable[Language]) -> str:
        codes = list(map(str, languages))
        more = len(codes) - _MOST_LISTED
        return ", ".join(codes[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class LanguageResolver:
    """What a bundle translates from and to. `reads_literals`: a text may begin with its language's token (`>>deu<<`)."""

    source: LanguageSide = LanguageSide("source")
    target: LanguageSide = LanguageSide("target")
    reads_literals: bool = False

    def tokens(self, source: str | None, target: str | None) -> LanguageTokens:
        """What the languages of a request need; InvalidRequest lists the known languages when one of them is unknown."""
        placed: dict[Place, int] = {}
        chosen = [(side, side.find(code)) for side, code in ((self.source, source), (self.target, target))]
        for side, language in chosen:
            if language is not None and language.token is not None:
                placed[side.place] = language.token
        into = chosen[-1][1]
        return LanguageTokens(
            shortlist=0 if into is None else into.shortlist,
            source_prefix=(placed["before"],) if "before" in placed else (),
            source_suffix=(placed["after"],) if "after" in placed else (),
            forced_bos=placed.get("forced_bos"),
            decoder_start=placed.get("decoder_start"),
        )

    def pair(self, source: str | None, target: str | None) -> str:
        """The language pair of an accepted request, such as `en>de`; an unknown side is `und`, and "" stands for two of
        them.
        """
        used = (self.source.used(source), self.target.used(target))
        return ">".join(str(one or "und") for one in used) if any(used) else ""

    def shortlist_behind(self, leading_token: str) -> int:
        """The shortlist of the language whose token a text begins with."""
        code = leading_token.strip().removeprefix(">>").removesuffix("<<")
        return next((one.shortlist for one in self.target.languages if one.own_code == code), 0)

    def leading_token(self, text: str) -> str:
        """The language token that `text` begins with, with the white space after it; "" without one.

        Only models that read such tokens have them: anywhere else `>>fra<<` is text like any other.
        """
        if not self.reads_literals or not text.startswith(">>"):
            return ""
        code, closed, rest = text[:_LONGEST_LEADING_TOKEN].partition("<<")
        if not closed or any(character.isspace() for character in code):
            return ""
        return text[: len(code) + len(closed) + len(rest) - len(rest.lstrip())]


def language_resolver(manifest: Manifest, literal_tokens: Mapping[str, int] | None = None) -> LanguageResolver:
    """The resolver of a bundle: by the languages in its manifest, by Marian's `>>deu<<` tokens, or else by its one language
    pair.
    """
    return resolver_of(manifest.model, manifest.languages, manifest.generation, literal_tokens, tuple(manifest.shortlists))


def resolver_of(
    model: ModelCard,
    languages: Languages | None,
    generation: DecodingOptions,
    literal_tokens: Mapping[str, int] | None = None,
    shortlists: Sequence[str] = (),
) -> LanguageResolver:
    """The same of what a manifest holds; `shortlists`: the languages with lists, in the order of their numbers."""
    numbers = {code: at + 1 for at, code in enumerate(shortlists)}
    if languages is not None:
        return _with_tokens(languages, generation, numbers)
    source = _named("source", model.source_language)
    if not literal_tokens:
        return LanguageResolver(source, _named("target", model.target_language))
    tokens = {piece.removeprefix(">>").removesuffix("<<"): token for piece, token in literal_tokens.items()}
    targets = tuple(_language(code, token, numbers) for code, token in sorted(tokens.items()))
    return LanguageResolver(source, LanguageSide("target", targets, "before"), reads_literals=True)


def _with_tokens(record: Languages, generation: DecodingOptions, numbers: Mapping[str, int]) -> LanguageResolver:
    found = {code: _language(code, token, numbers) for code, token in record.tokens.items()}
    languages = tuple(found.values())
    source = LanguageSide(
        "source",
        languages,
        record.source_place,
        found.get(record.default_source or ""),
        is_required=record.source_place != "none",
    )
    place: Place = "before" if record.target_place == "source_before" else record.target_place
    target = LanguageSide(
        "target",
        languages,
        place,
        found.get(record.default_target or ""),
        is_required=place == "before" or (place == "forced_bos" and generation.forced_bos is None),
    )
    return LanguageResolver(source, target)


def _language(own_code: str, token: int, numbers: Mapping[str, int]) -> Language:
    return Language(parse_tag(own_code) or LanguageTag(own_code), own_code, token, numbers.get(own_code, 0))


def _named(name: Literal["source", "target"], codes: str | None) -> LanguageSide:
    """The languages that the manifest names, several with `+` between them."""
    named = [(code, parse_tag(code)) for code in (codes or "").split("+") if code]
    languages = tuple(Language(tag, code) for code, tag in named if tag is not None and not is_language_group(tag))
    return LanguageSide(name, languages, is_open=any(tag is not None and is_language_group(tag) for _, tag in named))


def _closest(tag: LanguageTag, known: tuple[Language, ...]) -> Language | None:
    """The language that `tag` means: the same, or else the only one left when region and then script are ignored."""
    same = [language for language in known if language.tag.language == tag.language]
    tag = with_usual_script(tag)
    for kept in (
        [one for one in same if with_usual_script(one.tag) == tag],
        [one for one in same if one.tag.script == tag.script and not one.tag.region],
        [one for one in same if not (one.tag.script or one.tag.region)],
        [one for one in same if _compatible(with_usual_script(one.tag), tag)],
    ):
        if len({one.token for one in kept}) == 1:
            return kept[0]
    return None


def _compatible(known: LanguageTag, requested: LanguageTag) -> bool:
    """Whether neither names what contradicts the other: `pt` may be `pt-BR`, but `zh-Hant` is not `zh-Hans`."""
    return all(not one or not other or one == other for one, other in zip(known[1:], requested[1:], strict=True))
