"""Language codes: BCP 47 tags, ISO 639-1, -2 and -3, and the spellings that model vocabularies use, reduced to one form."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["MAX_CODE_CHARACTERS", "OTHER_NAMES", "LanguageTag", "is_language_group", "parse_tag", "with_usual_script"]

MAX_CODE_CHARACTERS = 35

# ISO 639-1 code and its ISO 639-3 code (or the 639-2/B code and the macrolanguage's members that models mean by it).
_ALPHA_3 = """
aa aar|ab abk|ae ave|af afr|ak aka|am amh|an arg|ar ara arb|as asm|av ava|ay aym ayr|az aze azj|ba bak|be bel|bg bul
bi bis|bm bam|bn ben|bo bod tib|br bre|bs bos|ca cat|ce che|ch cha|co cos|cr cre|cs ces cze|cu chu|cv chv|cy cym wel
da dan|de deu ger|dv div|dz dzo|ee ewe|el ell gre|en eng|eo epo|es spa|et est ekk|eu eus baq|fa fas per pes|ff ful fuv
fi fin|fj fij|fo fao|fr fra fre|fy fry|ga gle|gd gla|gl glg|gn grn|gu guj|gv glv|ha hau|he heb|hi hin|ho hmo|hr hrv|ht hat
hu hun|hy hye arm|hz her|ia ina|id ind|ie ile|ig ibo|ii iii|ik ipk|io ido|is isl ice|it ita|iu iku|ja jpn|jv jav
ka kat geo|kg kon|ki kik|kj kua|kk kaz|kl kal|km khm|kn kan|ko kor|kr kau|ks kas|ku kur kmr|kv kom|kw cor|ky kir
la lat|lb ltz|lg lug|li lim|ln lin|lo lao|lt lit|lu lub|lv lav lvs|mg mlg plt|mh mah|mi mri mao|mk mkd mac|ml mal
mn mon khk|mr mar|ms msa may zsm|mt mlt|my mya bur|na nau|nb nob|nd nde|ne nep npi|ng ndo|nl nld dut|nn nno|no nor|nr nbl
nv nav|ny nya|oc oci|oj oji|om orm gaz|or ori ory|os oss|pa pan|pi pli|pl pol|ps pus pbt|pt por|qu que quy|rm roh|rn run
ro ron rum|ru rus|rw kin|sa san|sc srd|sd snd|se sme|sg sag|si sin|sk slk slo|sl slv|sm smo|sn sna|so som|sq sqi alb als
sr srp|ss ssw|st sot|su sun|sv swe|sw swa swh|ta tam|te tel|tg tgk|th tha|ti tir|tk tuk|tl tgl|tn tsn|to ton|tr tur
ts tso|tt tat|tw twi|ty tah|ug uig|uk ukr|ur urd|uz uzb uzn|ve ven|vi vie|vo vol|wa wln|wo wol|xh xho|yi yid ydd
yo yor|za zha|zh zho chi cmn|zu zul
"""
_RENAMED = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "fil": "tl"}
_ALPHA_2 = {
    code: entry.split()[0] for line in _ALPHA_3.split("\n") for entry in line.split("|") if entry for code in entry.split()
} | _RENAMED
OTHER_NAMES = {"no": "nb", "nb": "no"}
"""Norwegian is Bokmål nearly always, and models have it under one of the two."""

_SCRIPT_OF_REGION = {"cn": "hans", "sg": "hans", "tw": "hant", "hk": "hant", "mo": "hant"}
"""How Chinese is written there."""

# ISO 639-5, and the name that OPUS-MT gave the Romance languages.
_GROUP_CODES = """
mul aav afa alg alv art aus bat bad bai ber bih bnt btk cau cba ccn ccs cdc cdd cel cmc cpe cpf cpp crp csu cus day
dmn dra egx esx euq fiu fox gem gme gmq gmw grk hmx hok hyx iir ijo inc ine ira iro itc jpx kar kdo khi kro map mkh
mno mun myn nah nai ngf nic nub omq omv oto paa phi plf poz pqe pqw pra qwe roa romance sai sal sdv sem sgn sio sit
sla smi son sqj ssa syd tai tbq trk tup tut tuw urj wak wen xgn xnd ypk zhx zle zls zlw znd
"""
_GROUPS = frozenset(_GROUP_CODES.split())
_TAG = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8}){0,4}")


class LanguageTag(NamedTuple):
    """A language with the script and region that set it apart; both are "" when the code names none."""

    language: str
    script: str = ""
    region: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.language, self.script.title(), self.region.upper()) if part)


def parse_tag(code: str) -> LanguageTag | None:
    """The language that `code` means, in any usual spelling: `en`, `eng`, `EN-us`, `eng_Latn`, `en_XX`, `__en__`, `>>eng<<`.

    None when it is not a language code.
    """
    if len(code) > MAX_CODE_CHARACTERS or not code.isascii():
        return None
    code = code.removeprefix(">>").removesuffix("<<").strip("_").replace("_", "-").lower()
    if not _TAG.fullmatch(code):
        return None
    language, *subtags = code.split("-")
    script = next((tag for tag in subtags if len(tag) == 4 and tag.isalpha()), "")
    region = next((tag for tag in subtags if (len(tag) == 2 and tag.isalpha()) or (len(tag) == 3 and tag.isdigit())), "")
    return LanguageTag(_ALPHA_2.get(language, language), script, "" if region == "xx" else region)


def with_usual_script(tag: LanguageTag) -> LanguageTag:
    """The tag with the script that its region implies, if it implies one: `zh-TW` becomes `zh-Hant-TW`."""
    if tag.script or tag.language != "zh":
        return tag
    return tag._replace(script=_SCRIPT_OF_REGION.get(tag.region, ""))


def is_language_group(tag: LanguageTag) -> bool:
    """Whether the code names a family of languages (`gem`, `mul`), as models for several languages do."""
    return tag.language in _GROUPS
