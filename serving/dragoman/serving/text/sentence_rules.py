"""Per language: which marks end sentences, and which dots belong to words.

A text of unknown language uses the abbreviations of all languages together; a language without an entry uses those that are
common to all.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from dragoman.bundle.language_codes import parse_tag

__all__ = ["CLOSING", "OPENING", "WIDE_MARKS", "SentenceRules", "has_spaces", "rules_for"]

OPENING = "\"'“‘„‚«‹»›([{（【「『〈《¿¡–—-"
CLOSING = "\"'”’“‘»›«‹)]}）】」』〉》"
"""“ closes German quotations, « those of »this« kind: directly after a mark they do, but “ opens where a word follows it."""
_MARKS = ".!?…‽؟۔։।॥።፧။។៕༎‼⁇⁈⁉"
WIDE_MARKS = "。！？｡．"
"""They need no space after them."""


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# All without their last dot, in lower case.
_GO_ON = {
    "": "mr mrs ms dr prof vs cf ca vol fig figs p pp max min approx tel",
    "en": "rev gen col capt lt sgt hon gov pres messrs mt ft e.g i.e ed eds ext viz",
    "de": "hr fr frl str bzw ggf evtl inkl exkl zzgl abs bd nr vgl sog bspw z.b d.h i.d.r u.u s.o s.u ing dipl geb ung std",
    "fr": "m mm mme mmes mlle mlles mgr chap av env c.-à-d",
    "es": "sr sra srta d dn dña ud uds dto pág págs núm ee avda p.ej",
    "pt": "sr sra dra d av pág exmo v.g",
    "it": "sig sigg sig.ra dott dott.ssa prof.ssa avv ing pag es p.es",
    "nl": "dhr mevr mw enz bijv d.w.z drs mr ir o.a blz nl",
    "sv": "t.ex bl.a d.v.s s.k",
    "da": "f.eks bl.a dvs hr fr",
    "nb": "f.eks bl.a dvs",
    "fi": "esim mm ns",
    "ru": "ул стр рис им тыс проф др т.е т.н напр гл обл просп пер",
    "uk": "вул див рис ім тис проф ін",
    "pl": "ul al pl np tzn tzw godz prof dr hab inż mgr św im zob por",
    "cs": "ul nám např tzv tj popř resp ing mgr prof dr sv",
    "sk": "ul nám napr tzv tj resp ing mgr prof dr sv",
    "hu": "pl ún kb dr id ifj",
    "ro": "dl dna str nr dr prof",
    "tr": "dr prof doç av sok cad",
}
"""No sentence ends after them: something always follows."""
_MAY_END = {
    "": "etc al co st inc ltd corp bros jr sr dept",
    "en": "univ est ave blvd rd jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur fri sat sun",
    "de": "usw jh mio mrd u.a o.ä hbf str abb",
    "fr": "apr j.-c",
    "es": "uu cía s.a",
    "it": "ecc s.p.a",
    "nl": "enz e.d",
    "ru": "г гг в вв млн млрд руб коп т.д т.п",
    "uk": "р рр млн млрд грн",
    "pl": "r w itd itp zł mln mld",
    "cs": "r atd apod mil kč",
    "sk": "r atď mil",
}
"""A sentence ends after them if a word follows that begins sentences."""
_BEFORE_NUMBERS = _words("no nos art p pp nº n° núm cap sec seite s bl kap t str nr št č čl")
"""Those that are also words count only before a number."""
_STARTERS = {
    "en": """The A An He She It They We You I This That These Those There But And Or So In On At When If After Before
        However My His Her Its Our Their How What Where Who Why Which Did Do Does Is Are Was Were Has Have Had Can
        Could Will Would Should Nobody Nothing Everybody Everything Some Then Now Here No Not Yes As By For From
        With Without To Because While Although Once Let Please""",
    "de": """Der Die Das Den Dem Ein Eine Er Sie Es Wir Ich Dies Diese Dieser Aber Und Oder Im In Am Auf Mit Wenn Nach
        Dann Da Dort Hier Heute Wer Was Wo Wann Warum Wie Nicht Alles Niemand Doch Nun""",
    "fr": "Le La Les Un Une Des Il Elle On Ils Elles Nous Vous Je Tu Ce Cette Ces Mais Et En Dans Pour Qui Que Où Quand Si",
    "es": "El La Los Las Un Una Él Ella Ellos Yo Tú Pero Y En De Es Son No Sí Esto Este Esta Cuando Si",
    "it": "Il Lo La I Gli Le Un Una Lui Lei Loro Io Tu Ma E In È Non Questo Questa Quando Se",
    "pt": "O A Os As Um Uma Ele Ela Eles Eu Mas E Em É Não Este Esta Quando Se",
    "nl": "De Het Een Hij Zij Ze Wij We Ik Dit Dat Deze Maar En In Op Als Toen Er",
    "ru": "Он Она Оно Они Я Мы Вы Ты Это Этот Эта В На И Но А С К У Когда Если После Затем Там Тут Его Её Их Мой Не Да Нет",
    "pl": "On Ona Ono Oni Ja My Wy Ty To Ten Ta W Na I Ale A Kiedy Gdy Jeśli Potem Tam Nie Tak",
}
"""Words that begin a sentence rather than go on after U.S. or p.m."""
_ORDINAL_DOTS = _words("de da nb nn no fi et hu cs sk pl hr sr sl bs lv tr is fo eu")
"""Languages that write 3. for "third"."""
_WITHOUT_STOPS = _words("th lo")
_WITHOUT_SPACES = _words("zh yue wuu lzh ja th lo km my")
_MORE_MARKS = {"el": ";;", "hy": ":"}
"""The Greek question mark is a semicolon; many write the Armenian full stop as a colon."""
_NUMERALS = frozenset("IVX")
_NEXT_WORD = re.compile(r"[\w'’]+")


@dataclass(frozen=True, slots=True)
class SentenceRules:
    """The rules of one language. `ending`: a run of marks and what closes after it, in the groups `mark` and `closing`.

    `without_stops`: the language writes no full stops, and spaces between clauses.
    """

    ending: re.Pattern[str]
    go_on: frozenset[str]
    may_end: frozenset[str]
    starters: frozenset[str]
    has_ordinal_dots: bool
    without_stops: bool

    def dot_ends(self, word: str, word_before: str, following: str) -> bool:
        """A single dot after `word`: the end of the sentence, or part of the word?"""
        next_word = _NEXT_WORD.match(following)
        starter = next_word is not None and next_word.group() in self.starters
        lowered = word.lower().lstrip("(")
        if lowered in _BEFORE_NUMBERS and following[:1].isdigit():
            return False
        if len(word) == 1 and word.isalpha():  # an initial, unless it is the pronoun, a numeral or the name of a thing
            return starter and (word in _NUMERALS or not word_before[:1].isupper())
        if lowered in self.go_on:
            return False
        if "." in word and all(len(part) <= 2 for part in word.split(".")) and not word[0].isdigit():
            return starter  # U.S., p.m.
        if word.isdigit() and len(word) <= 2 and self.has_ordinal_dots:
            return starter
        if lowered.endswith("str") and following[:1].isdigit():
            return False  # Hauptstr. 5
        return starter or lowered not in self.may_end


@functools.lru_cache(maxsize=256)
def has_spaces(language: str | None) -> bool:
    """Whether a language, in any spelling, has spaces between sentences; most have."""
    tag = parse_tag(language) if language else None
    return tag is None or tag.language not in _WITHOUT_SPACES


@functools.lru_cache(maxsize=256)
def rules_for(language: str | None) -> SentenceRules:
    """The rules of a language in any spelling (`de`, `deu_Latn`); None stands for an unknown language."""
    tag = parse_tag(language) if language else None
    code = tag.language if tag is not None else None
    marks = _MARKS + _MORE_MARKS.get(code or "", "")
    return SentenceRules(
        # A run of marks (also of dots with a space between each), then what closes; « French » closes after a space.
        re.compile(
            rf"(?P<mark>[{marks}{WIDE_MARKS}]+(?:[ \xa0]\.(?![\w.]))*)"
            rf"(?P<closing>(?:(?![“‘][\w《「『（【])[{re.escape(CLOSING)}]|[ \xa0\u202f][»›](?![^\s.,;:!?]))*)"
        ),
        go_on=_listed(_GO_ON, code),
        may_end=_listed(_MAY_END, code) - _listed(_GO_ON, code),
        starters=_listed(_STARTERS, code),
        has_ordinal_dots=code in _ORDINAL_DOTS,
        without_stops=code in _WITHOUT_STOPS,
    )


def _listed(table: dict[str, str], code: str | None) -> frozenset[str]:
    own = table.values() if code is None else (table.get("", ""), table.get(code, ""))
    return frozenset().union(*map(_words, own))
