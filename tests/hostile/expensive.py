"""Requests that ask for as much as one request can; none may hold up a neighbour's next token.

They end by themselves: `timeout_ms` bounds what is legal but long, so that nothing is cancelled from the caller's side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hostile.markup_texts import HTML_TEXTS, MARKDOWN_TEXTS, XML_TEXTS
from hostile.outcomes import Outcome
from hostile.sending import (
    ORDINARY,
    drive_session,
    send_command,
    send_empty_texts,
    send_large_options,
    send_large_text,
    send_long_message,
    send_raw_texts,
    send_stream,
    send_targets,
    send_texts,
    send_to_encoder,
)
from served import Caller

ANSWERED_MS = 30_000

WORST = {"entities of entities", "segments", "quotes", "stars", "emphasis", "cells"}
TERMS = [[f"w{n}", f"W{n}"] for n in range(256)]


@dataclass(frozen=True, slots=True)
class Expensive:
    """Something to send, and what a server may answer."""

    name: str
    send: Callable[[Caller], Outcome]
    is_refused: bool = False
    """Must it be INVALID_REQUEST?"""
    is_cut_off: bool = False
    """Is the message so long that its connection is ended?"""
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
    dots, words, thai = "." * 40_000 + "x", "abc " * 25_000, "เขาไปโรงเรียน" * 2500
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
        "33,000 words that the model can't read": "א," * 33_000,
        "100 kB in capitals": "WHERE IS IT? " * 7_600,
        "16,000 lines of signs": "* * *\n" * 16_000,
        "49,000 blank lines": "a." + " \n" * 49_000 + "b.",
    }
    return [
        *(Expensive(name, partial(send_texts, [text])) for name, text in texts.items()),
        Expensive("40,000 dots, streamed", partial(send_stream, dots)),
        Expensive("abc 25,000 times, streamed", partial(send_stream, words)),
        Expensive("100 kB of ordinary text, streamed", partial(send_stream, (ORDINARY * 700)[:99_900])),
        Expensive("abc 25,000 times, encoder", partial(send_to_encoder, [words])),
        Expensive("100 kB of Thai without spaces", partial(send_texts, [thai])),
        Expensive("100 kB of Thai for the model to read", partial(send_texts, [thai], placeholders=False), is_refused=True),
        Expensive("100 kB of opening quotation marks", partial(send_texts, ["“ " * 24_900 + "A."], split="line")),
        Expensive("50,000 lines", partial(send_texts, ["a\n" * 49_900], split="line")),
        Expensive("100 kB without a split", partial(send_texts, [(ORDINARY * 700)[:99_900]], split="none")),
    ]


def _commands() -> list[Expensive]:
    """Many tokens, or many lists, in one COMMAND."""
    return [
        Expensive("1 million lists in COMMAND", partial(send_command, "[]", 1_000_000), is_refused=True),
        Expensive("87,000 lists in COMMAND", partial(send_command, "[]", 87_000)),
        Expensive("65,000 tokens in COMMAND", partial(send_command, "[7,9]", 43_000)),
        Expensive("256 lists of 250 tokens in COMMAND", partial(send_command, str([9] * 250), 256)),
        Expensive("130,000 tokens in COMMAND", partial(send_command, f"[{','.join(['9'] * 500)}]", 256)),
    ]


def _empty() -> list[Expensive]:
    return [
        Expensive("5 million empty texts", partial(send_empty_texts, 5_000_000), is_refused=True),
        Expensive("20 million empty texts", partial(send_empty_texts, 20_000_000), is_cut_off=True),
        Expensive("4 million empty texts, raw", partial(send_raw_texts, 4_000_000), is_refused=True),
        Expensive("20 million empty texts, raw", partial(send_raw_texts, 20_000_000), is_cut_off=True),
    ]


def _enormous() -> list[Expensive]:
    return [
        Expensive("70 million empty texts", partial(send_empty_texts, 70_000_000), is_cut_off=True),
        Expensive("8 MiB of options", partial(send_large_options, 8 << 20), is_refused=True),
        Expensive("15 MiB in one text", partial(send_large_text, 15 << 20), is_refused=True),
        Expensive("1 GiB in one text", partial(send_long_message, 1 << 30), is_cut_off=True),
    ]


def _markup(*, full: bool) -> list[Expensive]:
    """100 kB of each kind of tags; `full`: of each sign of XML and Markdown, too."""
    attributes: dict[str, object] = {"format": "html", "translate_attributes": True}
    return [
        *(
            Expensive(f"100 kB of {name}", partial(send_texts, [text[:99_900]], format="html"))
            for name, text in HTML_TEXTS.items()
        ),
        Expensive("100 kB in one tag", partial(send_texts, ["<p " + "title='a b' " * 8_300 + ">a</p>"], **attributes)),
        Expensive("3,800 attributes", partial(send_texts, ["<b title='a b'>c</b> " * 4_700], **attributes)),
        *(
            Expensive(f"100 kB of {name} in {kind}", partial(send_texts, [text[:99_900]], format=kind))
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
            "widest beam, longest text", partial(send_texts, [ORDINARY], **longest, num_hypotheses=16, min_length=499)
        ),
        Expensive("8 widest beams, 1-gram bans", partial(send_texts, long[:8], **longest, no_repeat_ngram_size=1)),
        Expensive("256 texts, 1024 bad words", partial(send_texts, long, bad_words=bad_pairs, beam_size=4)),
        Expensive("64 texts, 1024 bad tokens", partial(send_texts, long[:64], bad_words=bad_tokens, beam_size=4)),
        Expensive("64 texts from the whole vocabulary", partial(send_texts, long[:64], sampling=True, top_k=0, beam_size=1)),
        Expensive("256 prefixes of 400 tokens", partial(send_texts, [f"Hi {n}." for n in range(256)], prefix=[9] * 400)),
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
        Expensive("256 terms, each 200 times", partial(send_texts, [_named(51_200)[:99_900]], glossary=TERMS)),
        Expensive("256 texts of 24 terms", partial(send_texts, of_terms, glossary=TERMS)),
        Expensive("16 texts of 256 terms", partial(send_texts, of_every_term, glossary=TERMS, **widest)),
        Expensive("100 kB of signs, 256 terms", partial(send_texts, ["# " * 49_900], glossary=TERMS)),
        Expensive("256 texts, 250 forbidden terms", partial(send_texts, many, glossary=forbidden)),
        Expensive(
            "24 terms, each in the next",
            partial(send_texts, ["a " * 49_900], glossary=[[" ".join("A" * n), f"b{n}"] for n in range(1, 25)]),
        ),
        Expensive(
            "64 texts of 64 phrases",
            partial(send_texts, texts, phrases=[[[9, 7 + n], [7 + n]] for n in range(64)], beam_size=16),
        ),
        Expensive("16 texts of 30 phrases", partial(send_texts, texts[:16], phrases=_spelled(30, 8), **widest)),
        Expensive("16 texts of 30 terms", partial(send_texts, texts[:16], terms=_spelled(30, 8), **widest)),
        Expensive("16 texts of 64 long phrases", partial(send_texts, texts[:16], phrases=_spelled(64, 9), **widest)),
        Expensive("64 texts of 64 terms, narrow beams", partial(send_texts, texts, terms=_spelled(64, 9), beam_size=2)),
        Expensive("phrases that repeat themselves", partial(send_texts, texts[:16], phrases=repeated, **widest)),
    ]


def _named(count: int) -> str:
    return " ".join(f"w{n % 256}" for n in range(count))


def _spelled(phrases: int, tokens: int) -> list[list[list[int]]]:
    """Phrases in four spellings that begin with different tokens."""
    return [[[100 + 4 * phrase + which + 200 * n for n in range(tokens)] for which in range(4)] for phrase in range(phrases)]


def _many_sentences() -> list[Expensive]:
    return [
        Expensive("256 long texts", partial(send_texts, [f"{ORDINARY * 3}{n}" for n in range(256)])),
        Expensive(
            "256 long texts, each sentence twice",
            partial(send_texts, [f"{ORDINARY}{n}" for n in range(256)], on_suspicion="retry"),
        ),
        Expensive("80 texts of 100 kB", partial(send_texts, [(f"{n} " + ORDINARY * 700)[:99_900] for n in range(80)])),
        Expensive(
            "33,000 sentences with a long task prefix", partial(send_texts, ["A. " * 33_000], task_prefix="go on " * 80)
        ),
    ]


def _figures() -> list[Expensive]:
    """What is not translated costs nothing but is in every hypothesis, and in what a session tells of itself."""
    texts = [f"Hi {n}. {'5 ' * 49_900}" for n in range(80)]
    every = {"beam_size": 16, "num_hypotheses": 16, "timeout_ms": ANSWERED_MS}
    return [
        Expensive("5 texts of figures, 16 hypotheses", partial(send_texts, texts[:5], **every), is_answered=True),
        Expensive("80 texts of figures", partial(send_texts, texts, timeout_ms=ANSWERED_MS), is_answered=True),
        Expensive("15 texts of figures, 16 hypotheses", partial(send_texts, texts[:15], **every), is_refused=True),
        Expensive("60 texts of figures, encoder", partial(send_to_encoder, texts[:60])),
        Expensive("80 texts of lines, encoder", partial(send_to_encoder, ["a\n" * 49_900] * 80), is_refused=True),
    ]


def _documents() -> list[Expensive]:
    """Streams, and everything that can be asked of a document at once."""
    page = ("<p>w1 <b>" + ORDINARY + "</b> {a} w2 <i>w3</i></p>") * 450
    everything = {
        **{"format": "html", "glossary": TERMS, "alignment": True, "on_suspicion": "retry", "task_prefix": "go on "},
        **{"beam_size": 16, "num_hypotheses": 16, "no_repeat_ngram_size": 2},
    }
    return [
        Expensive("100 kB of html, streamed", partial(send_stream, page[:99_900], format="html")),
        Expensive("a stream of everything at once", partial(send_stream, page[:99_900], **everything)),
        Expensive("a text of everything at once", partial(send_texts, [page[:99_900]], **everything)),
        Expensive(
            "80 texts of everything at once", partial(send_texts, [f"{n}{page}"[:99_900] for n in range(80)], **everything)
        ),
    ]


def _aligned_and_scored() -> list[Expensive]:
    """What is read by forced decoding."""
    long = ORDINARY * 8
    widest = {"beam_size": 16, "num_hypotheses": 16, "max_length": 500, "min_length": 400}
    texts = [f"{ORDINARY * 3}{n}" for n in range(256)]
    return [
        Expensive("256 long texts, aligned", partial(send_texts, texts, alignment=True)),
        Expensive("16 long hypotheses, aligned", partial(send_texts, [long], alignment=True, **widest)),
        Expensive("16 long hypotheses of 64 texts, aligned", partial(send_texts, [long] * 64, alignment=True, **widest)),
        Expensive(
            "256 answers, aligned and checked",
            partial(
                send_texts,
                [f"Hi {n}." for n in range(256)],
                **{"alignment": True, "on_suspicion": "report", "max_length": 3, "timeout_ms": ANSWERED_MS},
            ),
            is_answered=True,
        ),
        Expensive("256 long targets", partial(send_targets, [(long + str(n), long + str(n)) for n in range(256)])),
        Expensive("long targets of short texts", partial(send_targets, [(f"{n}", long + str(n)) for n in range(256)])),
        Expensive("40 targets of 100 kB", partial(send_targets, [("a", "abc " * 24_900)] * 40), is_refused=True),
        Expensive("a target of 100 kB without spaces", partial(send_targets, [("a", "x" * 99_900)]), is_refused=True),
        Expensive("a target of 4,000 dots", partial(send_targets, [("a", "." * 4_000)])),
        Expensive("40 targets of texts of 100 kB", partial(send_targets, [("abc " * 24_900, "a")] * 40), is_refused=True),
    ]


def _sessions() -> list[Expensive]:
    """Client-driven decoding."""
    sources = [ORDINARY * 10 + str(n) for n in range(64)]
    return [
        Expensive("64 rows, all candidates", partial(drive_session, 64, 6, "wide")),
        Expensive("width changes at every step", partial(drive_session, 64, 12, "changing")),
        Expensive("64 sources of 500 tokens, encoder", partial(send_to_encoder, sources, split="none")),
    ]
