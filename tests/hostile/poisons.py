"""Values that no option, command or name may have, each small enough to pass every limit in bytes.

Options and their types are those of the server's own schema: a new option is attacked from its first day, and one of a new
type fails here until it has values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tritonclient.grpc import service_pb2

from dragoman.bundle.languages import LanguageResolver
from dragoman.bundle.manifest import Dimensions
from dragoman.search import DecodingOptions
from dragoman.search.option_types import (
    Boolean,
    Choice,
    Integer,
    IntegerList,
    Number,
    OptionType,
    Phrases,
    Text,
    Token,
    TokenList,
    TokenLists,
)
from dragoman.serving.process.glossaries import GlossaryOption
from dragoman.serving.process.options import OptionsReader
from dragoman.wire import Limits
from served import add_bytes, request

SCHEMA = OptionsReader(Dimensions(8, 1, 8, 1, 1, 9, 9, 9, 9), DecodingOptions(), Limits(), LanguageResolver()).schema
OPTIONS = tuple(SCHEMA)

HUGE = "9" * 310
"""A whole number that no float can hold."""


def nested(depth: int) -> str:
    """Lists in lists, as JSON."""
    return "[" * depth + "]" * depth


ANYWHERE = {
    "984 nested lists": nested(984),
    "8000 nested lists": nested(8000),
    "200 nested objects": '{"a":' * 200 + "1" + "}" * 200,
    "an object": '{"a": 1}',
}
NUMBERS = {
    "310 digits": HUGE,
    "310 digits below 0": f"-{HUGE}",
    "2^63": str(2**63),
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "1e999": "1e999",
    "-1e999": "-1e999",
    "4299 digits": "9" * 4299,
    "5000 digits": "9" * 5000,
    "a text": '"4"',
    "true": "true",
    "a list": "[4]",
}
STRINGS = {
    "a lone surrogate": r'"\ud800"',
    "surrogates in the wrong order": r'"a\udc00\ud800b"',
    "a NUL": r'"\u0000"',
    "a number": "4",
    "310 digits": HUGE,
    "NaN": "NaN",
    "a list": '["a"]',
    "true": "true",
}
TOKENS = {
    "a number": "4",
    "310 digits": HUGE,
    "a list of 310 digits": f"[{HUGE}]",
    "a list of lists of 310 digits": f"[[{HUGE}]]",
    "a list of a text": r'["\ud800"]',
    "a list of NaN": "[NaN]",
    "a list of lists of NaN": "[[NaN]]",
    "a list of true": "[true]",
    "a list of lists of true": "[[true]]",
    "a list of 2^31": f"[{2**31}]",
    "a list of lists of 2^31": f"[[{2**31}]]",
    "a list of -1": "[-1]",
    "a list of lists of -1": "[[-1]]",
    "a list of empty lists": "[[]]",
    "a text": '"4"',
}
FLAGS = {"a number": "1", "310 digits": HUGE, "NaN": "NaN", "a text": '"true"', "a list": "[true]"}
TERMS = {
    "a number": "4",
    "a name that no glossary has": '"nobody"',
    "a lone surrogate": r'"\ud800"',
    "a list of a text": '["a"]',
    "a term without a target": '[["a"]]',
    "a term of three": '[["a", "b", "c"]]',
    "an empty source": '[["", "b"]]',
    "an empty target": '[["a", " "]]',
    "a target of numbers": '[["a", 5]]',
    "a target that is a lone surrogate": r'[["a", "\ud800"]]',
    "nothing forbidden": '[["a", "!"]]',
    "a contradiction": '[["a", "b"], ["a", "c"]]',
    "required and forbidden": '[["a", "b"], ["a", "!b"]]',
    "257 terms": "[" + ",".join(f'["a{n}", "b"]' for n in range(257)) + "]",
    "a term of 201 characters": f'[["{"a" * 201}", "b"]]',
    "a term of 25 words": f'[["{"a " * 25}", "b"]]',
    "984 nested lists as a term": f'[["a", {nested(984)}]]',
}
PHRASES = {
    "a number": "4",
    "a list of a number": "[4]",
    "a phrase without alternatives": "[[]]",
    "an alternative without tokens": "[[[]]]",
    "a token of 310 digits": f"[[[{HUGE}]]]",
    "a NaN token": "[[[NaN]]]",
    "a token of true": "[[[true]]]",
    "a token of 2^31": f"[[[{2**31}]]]",
    "a token below 0": "[[[-1]]]",
    "65 phrases": f"[{','.join(['[[4]]'] * 65)}]",
    "5 alternatives": f"[[{','.join(['[4]'] * 5)}]]",
    "65 tokens": f"[[{[4] * 65}]]",
    "a text": '"a"',
}

IMPOSSIBLE: dict[type[OptionType], dict[str, str]] = {
    **dict.fromkeys((Integer, Number, Token), NUMBERS),
    **dict.fromkeys((Text, Choice), STRINGS),
    **dict.fromkeys((IntegerList, TokenList, TokenLists), TOKENS),
    Boolean: FLAGS,
    GlossaryOption: TERMS,
    Phrases: PHRASES,
}
"""By the type of an option: what none of that type takes."""
POSSIBLE: dict[type[OptionType], tuple[str, ...]] = {
    Integer: ("0", "1", "2", "4", "16", "300"),
    Number: ("0.5", "1", "1.2", "3000"),
    Token: ("0", "7", "null"),
    Text: ('"de"', '"ein Wort"', '"go on "', '"x"', '""', "null"),
    IntegerList: ("[0]", "[3, 0, 3, 9999999]", "[]"),
    TokenList: ("[9, 7]", "[]"),
    TokenLists: ("[[9], [7, 9]]", "[]"),
    Boolean: ("true", "false"),
    GlossaryOption: ('[["word", "Wort"], ["Hello", "!Hallo"]]', '[["*", "!ein"], ["a", "b"]]', "null"),
    Phrases: ("[[[4, 5], [6]]]", "[]"),
}
"""What some of that type take: several of these together get further than any one mistake."""


def possible(option: str) -> tuple[str, ...]:
    """Values that the option may have, as JSON."""
    kind = SCHEMA[option]
    return tuple(json.dumps(word) for word in kind.words) if isinstance(kind, Choice) else POSSIBLE[type(kind)]


DOCUMENTS = {
    "nothing but [": b"[" * 16_000,
    'nothing but {"a":': b'{"a":' * 3_000,
    "not UTF-8": b'{"prefix_text": "\xff\xfe"}',
    "UTF-16": '{"beam_size": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"beam_size": "x"}',
    "a NUL": b"\x00",
    "a number of 16000 digits": b"9" * 16_000,
    "a list": b"[]",
    "a text": b'"beam_size"',
    "null": b"null",
    "two objects": b"{}{}",
    "1500 unknown options": b"{" + b",".join(b'"%d":1' % n for n in range(1500)) + b"}",
    "an option with a name of 16000 bytes": b'{"' + b"x" * 16_000 + b'": 1}',
    "an option named by a lone surrogate": rb'{"\ud800": 1}',
    "a comment": b"{/* */}",
    "17000 bytes": b" " * 17_000,
}

COMMANDS = {
    "candidates of 310 digits": f'{{"do": "step", "candidates": {HUGE}}}',
    "candidates of 2^31": f'{{"do": "step", "candidates": {2**31}}}',
    "no candidates": '{"do": "step", "candidates": 0}',
    "candidates below 0": '{"do": "step", "candidates": -1}',
    "NaN candidates": '{"do": "step", "candidates": NaN}',
    "984 nested candidates": f'{{"do": "step", "candidates": {nested(984)}}}',
    "984 nested tokens": f'{{"do": "text", "tokens": {nested(984)}}}',
    "a token of 310 digits": f'{{"do": "text", "tokens": [[{HUGE}]]}}',
    "a token of 2^62": f'{{"do": "text", "tokens": [[{2**62}]]}}',
    "a token of 2^31": f'{{"do": "text", "tokens": [[{2**31}]]}}',
    "a token below 0": '{"do": "text", "tokens": [[-1]]}',
    "a NaN token": '{"do": "text", "tokens": [[NaN]]}',
    "a lone surrogate to do": r'{"do": "\ud800"}',
    "984 nested lists to do": f'{{"do": {nested(984)}}}',
    "nothing to do": "{}",
    "not JSON": "[" * 200_000,
}

NAMES = {
    "a lone surrogate": b"\xed\xa0\x80",
    "not UTF-8": b"\xff\xff",
    "a path": b"../../../../etc/passwd",
    "10000 bytes": b"x" * 10_000,
    "a NUL": b"en-de\x00",
}


@dataclass(frozen=True, slots=True)
class Poison:
    """A request's options that must be refused as INVALID_REQUEST, and nothing more."""

    name: str
    options: bytes

    def request(self, model: str) -> service_pb2.ModelInferRequest:
        return request(model, ["Hello."], self.options)


def poisons() -> Iterator[Poison]:
    """Every option with every value that it can't have, and whole documents."""
    for option, kind in SCHEMA.items():
        for name, value in (IMPOSSIBLE[type(kind)] | ANYWHERE).items():
            yield Poison(f"{option}: {name}", f'{{"{option}": {value}}}'.encode())
    for name, document in DOCUMENTS.items():
        yield Poison(f"OPTIONS: {name}", document)


def command(raw: str | bytes, session: bytes = b"x", step: bytes | None = None) -> service_pb2.ModelInferRequest:
    """A `decoder` request."""
    message = service_pb2.ModelInferRequest(model_name="decoder")
    add_bytes(message, "SESSION", [session])
    add_bytes(message, "COMMAND", [raw if isinstance(raw, bytes) else raw.encode()])
    if step is not None:
        add_bytes(message, "STEP", [step])
    return message


def named(name: bytes, model: str = "translate") -> service_pb2.ModelInferRequest:
    """A request for the bundle `name`."""
    message = request(model, ["Hello."], {})
    add_bytes(message, "MODEL", [name])
    return message
