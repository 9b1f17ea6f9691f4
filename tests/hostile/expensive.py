"""Requests that ask for as much as one request can; none may hold up a neighbour's next token.

They end by themselves: `timeout_ms` bounds what is legal but long, so that nothing is cancelled from the caller's side.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from hostile.outcomes import Outcome, failed, stream, unary
from hostile.poisons import command
from served import Caller, add_bytes, request

LONGEST_MS = 1_500
ANSWERED_MS = 30_000
METHOD = "/inference.GRPCInferenceService/ModelInfer"

ORDINARY = (
    "The old man and his dog walked along the river until they came to a small house at the edge of the forest. "
    "Nobody had lived there for many years, and the door was open. "
)

HTML_TEXTS = {
    "open tags": "<b>" * 33_000,
    "nested elements": "<b>" * 14_000 + "a" + "</b>" * 14_000,
    "tags that cross": "<b><i>a</b></i>" * 6_600,
    "signs <": "<" * 99_900,
    "attributes": "<a " + "b=c " * 24_900 + ">d</a>",
    "entities": "&amp;" * 19_900,
    "paragraphs": "<p>a" * 24_900,
    "kept elements": "<code>a</code>b " * 6_200,
    "comments": "<!--a-->b" * 11_000,
}
ENTITIES = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(30))
XML_TEXTS = {
    "entities of entities": f'<!DOCTYPE a [<!ENTITY a0 "lol">{ENTITIES}]><a>' + "a &a30; b. " * 9_000,
    "references": "<a>" + "a &own; b. " * 9_000,
    "nested elements": "<a>" * 14_000 + "b" + "</a>" * 14_000,
    "sections": "<![CDATA[a]]>" * 7_600,
    "segments": "<xliff>" + "<source>a</source>" * 5_500,
}
MARKDOWN_TEXTS = {
    "quotes": "> " * 49_900,
    "lists": "- " * 49_900,
    "lists and blank lines": "- " * 100 + "\n" * 99_000,
    "brackets": "[" * 49_900 + "]" * 49_900,
    "links that nothing ends": "[a](b 'c" * 12_400,
    "stars": "*a **b " * 14_200,
    "emphasis": "**a** " * 16_600,
    "backticks": "".join("`" * n + "a" for n in range(440)),
    "cells": "|a" * 16_600 + "\n" + "|-" * 16_600 + "\n" + "|a" * 16_600,
    "comments that nothing ends": "a <!-- " * 14_200,
}
WORST = {"entities of entities", "segments", "quotes", "stars", "emphasis", "cells"}
TERMS = [[f"w{n}", f"W{n}"] for n in range(256)]


@dataclass(frozen=True, slots=True)
class Expensive:
    """Something to send, and what a server may answer."""

    name: str
    send: Callable[[Caller], Outcome]
    is_refused: bool = False
    """Must it be INVALID_REQUEST?"""
    is_answered: bool = False
    """Is its answer what is expensive? Then it has the time for it."""


def expensive(*, full: bool = False) -> list[Expensive]:
    """`full`: also what takes a test suite too long."""
    return [
        *_long_texts(),
        *_commands(),
        *_empty(),
        *_markup(full=full),
        *_wide_searches(),
        *_phrases(),
        *_many_sentences(),
        *_figures(),
        *_documents(),
        *_aligned_and_scored(),
        *_sessions(),
        *(_enormous() if full else ()),
    ]


def _long_texts() -> list[Expensive]:
    """Texts that rules of sentences, of words and of placeholders read for long."""
    dots, words = "." * 40_000 + "x", "abc " * 25_000
    texts = {
        "40,000 dots": dots,
        "abc 25,000 times": words,
        "one word of 100 kB": "x" * 99_999,
        "100 kB of spaces": "a" + " " * 99_990 + "b.",
        "33,000 times 。": "。" * 33_000,
        "50,000 quotation marks": ('."' * 50_000)[:99_999],
        "100 kB of combining marks": "a" + "\u0301" * 49_000,
        "100 kB of ordinary text": (ORDINARY * 700)[:99_900],
        "33,000 placeholders": "{a}" * 33_000,
        "24,000 placeholders between spaces": "{a} " * 24_000,
        "100 kB in capitals": "WHERE IS IT? " * 7_600,
        "16,000 lines of signs": "* * *\n" * 16_000,
        "49,000 blank lines": "a." + " \n" * 49_000 + "b.",
    }
    return [
        *(Expensive(name, partial(_translate, [text])) for name, text in texts.items()),
        Expensive("40,000 dots, streamed", partial(_stream, dots)),
        Expensive("abc 25,000 times, streamed", partial(_stream, words)),
        Expensive("100 kB of ordinary text, streamed", partial(_stream, (ORDINARY * 700)[:99_900])),
        Expensive("abc 25,000 times, encoder", partial(_encode, [words])),
        Expensive("100 kB of Thai without spaces", partial(_translate, ["เขาไปโรงเรียน" * 2500]), is_refused=True),
        Expensive("100 kB of opening quotation marks", partial(_translate, ["“ " * 24_900 + "A."], split="line")),
        Expensive("50,000 lines", partial(_translate, ["a\n" * 49_900], split="line")),
        Expensive("100 kB without a split", partial(_translate, [(ORDINARY * 700)[:99_900]], split="none")),
    ]


def _commands() -> list[Expensive]:
    """Many tokens, or many lists, in one COMMAND."""
    return [
        Expensive("1 million lists in COMMAND", partial(_command, "[]", 1_000_000), is_refused=True),
        Expensive("87,000 lists in COMMAND", partial(_command, "[]", 87_000)),
        Expensive("65,000 tokens in COMMAND", partial(_command, "[7,9]", 43_000)),
        Expensive("256 lists of 250 tokens in COMMAND", partial(_command, str([9] * 250), 256)),
        Expensive("130,000 tokens in COMMAND", partial(_command, f"[{','.join(['9'] * 500)}]", 256)),
    ]


def _empty() -> list[Expensive]:
    return [
        Expensive("5 million empty texts", partial(_empty_texts, 5_000_000), is_refused=True),
        Expensive("20 million empty texts", partial(_empty_texts, 20_000_000), is_refused=True),
        Expensive("20 million empty texts, raw", partial(_raw_texts, 20_000_000), is_refused=True),
    ]


def _enormous() -> list[Expensive]:
    return [
        Expensive("70 million empty texts", partial(_empty_texts, 70_000_000), is_refused=True),
        Expensive("8 MiB of options", partial(_large_options, 8 << 20), is_refused=True),
        Expensive("1 GiB in one text", partial(_large_text, 1 << 30), is_refused=True),
    ]


def _markup(*, full: bool) -> list[Expensive]:
    """100 kB of each kind of tags; `full`: of each sign of XML and Markdown, too."""
    attributes: dict[str, object] = {"format": "html", "translate_attributes": True}
    return [
        *(
            Expensive(f"100 kB of {name}", partial(_translate, [text[:99_900]], format="html"))
            for name, text in HTML_TEXTS.items()
        ),
        Expensive("100 kB in one tag", partial(_translate, ["<p " + "title='a b' " * 8_300 + ">a</p>"], **attributes)),
        Expensive("3,800 attributes", partial(_translate, ["<b title='a b'>c</b> " * 4_700], **attributes)),
        *(
            Expensive(f"100 kB of {name} in {kind}", partial(_translate, [text[:99_900]], format=kind))
            for kind, named in (("xml", XML_TEXTS), ("markdown", MARKDOWN_TEXTS))
            for name, text in named.items()
            if full or name in WORST
        ),
    ]


def _wide_searches() -> list[Expensive]:
    """Searches with as many hypotheses, and that look at as many tokens, as there may be."""
    long = [f"{ORDINARY}{n}" for n in range(256)]
    longest = {"beam_size": 16, "max_length": 500}
    bad_pairs, bad_tokens = [[9, n] for n in range(1024)], [[5_000 + n] for n in range(1024)]
    return [
        Expensive(
            "widest beam, longest text", partial(_translate, [ORDINARY], **longest, num_hypotheses=16, min_length=499)
        ),
        Expensive("8 widest beams, 1-gram bans", partial(_translate, long[:8], **longest, no_repeat_ngram_size=1)),
        Expensive("256 texts, 1024 bad words", partial(_translate, long, bad_words=bad_pairs, beam_size=4)),
        Expensive("64 texts, 1024 bad tokens", partial(_translate, long[:64], bad_words=bad_tokens, beam_size=4)),
        Expensive("64 texts from the whole vocabulary", partial(_translate, long[:64], sampling=True, top_k=0, beam_size=1)),
        Expensive("256 prefixes of 400 tokens", partial(_translate, [f"Hi {n}." for n in range(256)], prefix=[9] * 400)),
    ]


def _phrases() -> list[Expensive]:
    """Phrases and terms: as many and in as many spellings as 16 kB of options hold."""
    many = [f"{ORDINARY}{n}" for n in range(256)]
    texts = many[:64]
    of_terms = [f"{n} " + " ".join(f"w{n}" for n in range(24)) for n in range(256)]
    of_every_term = [f"{n} " + " ".join(f"w{n}" for n in range(256)) for n in range(16)]
    widest: dict[str, object] = {"beam_size": 16, "max_length": 400}
    repeated = [[[9] * (61 + spelling) for spelling in range(4)]] * 20
    forbidden = [["*", f"!ein Wort {n}"] for n in range(250)]
    return [
        Expensive("256 terms, each 200 times", partial(_translate, [_named(51_200)[:99_900]], glossary=TERMS)),
        Expensive("256 texts of 24 terms", partial(_translate, of_terms, glossary=TERMS)),
        Expensive("16 texts of 256 terms", partial(_translate, of_every_term, glossary=TERMS, **widest)),
        Expensive("100 kB of signs, 256 terms", partial(_translate, ["# " * 49_900], glossary=TERMS)),
        Expensive("256 texts, 250 forbidden terms", partial(_translate, many, glossary=forbidden)),
        Expensive(
            "24 terms, each in the next",
            partial(_translate, ["a " * 49_900], glossary=[[" ".join("A" * n), f"b{n}"] for n in range(1, 25)]),
        ),
        Expensive(
            "64 texts of 64 phrases",
            partial(_translate, texts, phrases=[[[9, 7 + n], [7 + n]] for n in range(64)], beam_size=16),
        ),
        Expensive("16 texts of 30 phrases", partial(_translate, texts[:16], phrases=_spelled(30, 8), **widest)),
        Expensive("16 texts of 30 terms", partial(_translate, texts[:16], terms=_spelled(30, 8), **widest)),
        Expensive("16 texts of 64 long phrases", partial(_translate, texts[:16], phrases=_spelled(64, 9), **widest)),
        Expensive("64 texts of 64 terms, narrow beams", partial(_translate, texts, terms=_spelled(64, 9), beam_size=2)),
        Expensive("phrases that repeat themselves", partial(_translate, texts[:16], phrases=repeated, **widest)),
    ]


def _named(count: int) -> str:
    return " ".join(f"w{n % 256}" for n in range(count))


def _spelled(phrases: int, tokens: int) -> list[list[list[int]]]:
    """Phrases in four spellings that begin with different tokens."""
    return [[[100 + 4 * phrase + which + 200 * n for n in range(tokens)] for which in range(4)] for phrase in range(phrases)]


def _many_sentences() -> list[Expensive]:
    return [
        Expensive("256 long texts", partial(_translate, [f"{ORDINARY * 3}{n}" for n in range(256)])),
        Expensive(
            "256 long texts, each sentence twice",
            partial(_translate, [f"{ORDINARY}{n}" for n in range(256)], on_suspicion="retry"),
        ),
        Expensive("80 texts of 100 kB", partial(_translate, [(f"{n} " + ORDINARY * 700)[:99_900] for n in range(80)])),
        Expensive(
            "33,000 sentences with a long task prefix", partial(_translate, ["A. " * 33_000], task_prefix="go on " * 80)
        ),
    ]


def _figures() -> list[Expensive]:
    """What is not translated costs nothing but is in every hypothesis, and in what a session tells of itself."""
    texts = [f"Hi {n}. {'5 ' * 49_900}" for n in range(80)]
    every = {"beam_size": 16, "num_hypotheses": 16, "timeout_ms": ANSWERED_MS}
    return [
        Expensive("15 texts of figures, 16 hypotheses", partial(_translate, texts[:15], **every), is_answered=True),
        Expensive("80 texts of figures, 16 hypotheses", partial(_translate, texts, **every), is_refused=True),
        Expensive("60 texts of figures, encoder", partial(_encode, texts[:60])),
        Expensive("80 texts of lines, encoder", partial(_encode, ["a\n" * 49_900] * 80), is_refused=True),
    ]


def _documents() -> list[Expensive]:
    """Streams, and everything that can be asked of a document at once."""
    page = ("<p>w1 <b>" + ORDINARY + "</b> {a} w2 <i>w3</i></p>") * 450
    everything = {
        **{"format": "html", "glossary": TERMS, "alignment": True, "on_suspicion": "retry", "task_prefix": "go on "},
        **{"beam_size": 16, "num_hypotheses": 16, "no_repeat_ngram_size": 2},
    }
    return [
        Expensive("100 kB of html, streamed", partial(_stream, page[:99_900], format="html")),
        Expensive("a stream of everything at once", partial(_stream, page[:99_900], **everything)),
        Expensive("a text of everything at once", partial(_translate, [page[:99_900]], **everything)),
        Expensive(
            "80 texts of everything at once", partial(_translate, [f"{n}{page}"[:99_900] for n in range(80)], **everything)
        ),
    ]


def _aligned_and_scored() -> list[Expensive]:
    """What is read by forced decoding."""
    long = ORDINARY * 8
    widest = {"beam_size": 16, "num_hypotheses": 16, "max_length": 500, "min_length": 400}
    texts = [f"{ORDINARY * 3}{n}" for n in range(256)]
    return [
        Expensive("256 long texts, aligned", partial(_translate, texts, alignment=True)),
        Expensive("16 long hypotheses, aligned", partial(_translate, [long], alignment=True, **widest)),
        Expensive("16 long hypotheses of 64 texts, aligned", partial(_translate, [long] * 64, alignment=True, **widest)),
        Expensive(
            "256 answers, aligned and checked",
            partial(
                _translate,
                [f"Hi {n}." for n in range(256)],
                **{"alignment": True, "on_suspicion": "report", "max_length": 3, "timeout_ms": ANSWERED_MS},
            ),
            is_answered=True,
        ),
        Expensive("256 long targets", partial(_score, [(long + str(n), long + str(n)) for n in range(256)])),
        Expensive("long targets of short texts", partial(_score, [(f"{n}", long + str(n)) for n in range(256)])),
        Expensive("40 targets of 100 kB", partial(_score, [("a", "abc " * 24_900)] * 40), is_refused=True),
        Expensive("a target of 100 kB without spaces", partial(_score, [("a", "x" * 99_900)]), is_refused=True),
        Expensive("a target of 4,000 dots", partial(_score, [("a", "." * 4_000)])),
        Expensive("40 targets of texts of 100 kB", partial(_score, [("abc " * 24_900, "a")] * 40), is_refused=True),
    ]


def _sessions() -> list[Expensive]:
    """Client-driven decoding."""
    sources = [ORDINARY * 10 + str(n) for n in range(64)]
    return [
        Expensive("64 rows, all candidates", partial(_drive, 64, 6, "wide")),
        Expensive("width changes at every step", partial(_drive, 64, 12, "changing")),
        Expensive("64 sources of 500 tokens, encoder", partial(_encode, sources, split="none")),
    ]


def _score(pairs: list[tuple[str, str]], caller: Caller) -> Outcome:
    """Texts and their TARGET."""
    message = request("translate", [text for text, _ in pairs], {"timeout_ms": LONGEST_MS})
    add_bytes(message, "TARGET", [target.encode() for _, target in pairs])
    return unary(caller.stub, message, timeout_s=90)


def _translate(texts: list[str], caller: Caller, **options: object) -> Outcome:
    asked = {"cache": False, "timeout_ms": LONGEST_MS, **options}
    return unary(caller.stub, request("translate", texts, asked), timeout_s=90)


def _stream(text: str, caller: Caller, **options: object) -> Outcome:
    asked = {"cache": False, "timeout_ms": LONGEST_MS, **options}
    return stream(caller.stub, request("translate_stream", [text], asked), timeout_s=90, metadata=())


def _encode(texts: list[str], caller: Caller, **options: object) -> Outcome:
    began_s = time.monotonic()
    try:
        session, _ = caller.encode(texts, **options)
        caller.decode(session, {"do": "close"})
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    return Outcome("ok", seconds=time.monotonic() - began_s)


def _command(item: str, count: int, caller: Caller) -> Outcome:
    session, _ = caller.encode(["Hello."])
    raw = '{"do": "text", "tokens": [' + ",".join([item] * count) + "]}"
    outcome = unary(caller.stub, command(raw, session), timeout_s=90)
    caller.decode(session, {"do": "close"})
    return outcome


def _drive(rows: int, steps: int, how: str, caller: Caller) -> Outcome:
    """A client-driven session with as many rows and candidates as there may be; `changing` widths feed history again."""
    began_s = time.monotonic()
    session = None
    try:
        session, info = caller.encode([f"{ORDINARY} {n}" for n in range(1 if how == "changing" else rows)], split="none")
        candidates = info["choices"] if how == "wide" else 1
        before = 0
        for step in range(steps):
            width = rows if how == "wide" or step % 2 else 1
            asked = _step(how, width, before, info["tokens"]["decoder_start"] if step == 0 else 9)
            caller.decode(session, {"do": "step", "candidates": candidates}, asked)
            before = width
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    finally:
        if session is not None:
            caller.decode(session, {"do": "close"})
    return Outcome("ok", seconds=time.monotonic() - began_s)


def _step(how: str, width: int, before: int, token: int) -> list[tuple[int, int, int]]:
    """Rows of one step: one for each source, or all of one source."""
    if how == "wide":
        return [(row, row if before else -1, token) for row in range(width)]
    return [(0, min(row, before - 1) if before else -1, token) for row in range(width)]


def _empty_texts(count: int, caller: Caller) -> Outcome:
    """TEXT with so many elements of no bytes, as `bytes_contents`: two bytes each on the wire."""
    about = service_pb2.ModelInferRequest.InferInputTensor(name="TEXT", datatype="BYTES", shape=[count])
    tensor = about.SerializeToString() + _field(5, b"\x42\x00" * count)
    head = service_pb2.ModelInferRequest(model_name="translate").SerializeToString()
    return _send_raw(caller, head + _field(5, tensor))


def _raw_texts(count: int, caller: Caller) -> Outcome:
    """The same as `raw_input_contents`: four bytes each."""
    message = service_pb2.ModelInferRequest(model_name="translate")
    message.inputs.add(name="TEXT", datatype="BYTES", shape=[count])
    message.raw_input_contents.append(np.zeros(count, "<u4").tobytes())
    return _send_raw(caller, message.SerializeToString())


def _large_options(count: int, caller: Caller) -> Outcome:
    return unary(caller.stub, request("translate", ["Hello."], json.dumps({"x": "y" * count}).encode()), timeout_s=90)


def _large_text(count: int, caller: Caller) -> Outcome:
    return unary(caller.stub, request("translate", [b"x" * count], {}), timeout_s=90)


def _send_raw(caller: Caller, message: bytes) -> Outcome:
    began_s = time.monotonic()
    try:
        caller.channel.unary_unary(METHOD)(message, timeout=90)
    except grpc.RpcError as error:
        return failed(error, time.monotonic() - began_s)
    return Outcome("ok", seconds=time.monotonic() - began_s)


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field."""
    length, encoded = len(value), bytearray([number << 3 | 2])
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + value
