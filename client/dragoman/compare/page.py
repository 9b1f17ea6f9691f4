"""A comparison as a page: who is ahead, the figures as bars, and each line that differs with the words that do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from dragoman.compare.figures import Comparison, Difference, SideFigures
from dragoman.counts import counted
from dragoman.page import document, escaped

__all__ = ["as_page"]

SHOWN_DIFFERENCES = 200
MOST_WORDS = 400
"""The limit of words in a line that are compared one by one: longer lines are shown without marks."""
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|\s+|[^\w\s]")
"""Scripts that are written without spaces fall into characters."""
DRAGOMAN, CTRANSLATE2 = "dragoman", "CTranslate2"


def as_page(found: Comparison) -> str:
    """A whole HTML document that needs nothing but itself."""
    notes = (
        f"dragoman {version('dragoman')} · {counted(found.rounds, 'round')} in turn, medians · memory: dragoman's whole "
        "server with Triton, and the one process of CTranslate2"
    )
    parts = [
        _header(found),
        f'<section class="tiles">{"".join(_tiles(found))}</section>',
        f'<section class="plots">{"".join(_bars(found))}</section>',
        *_differences(found),
        f"<footer>{escaped(notes)}</footer>",
    ]
    return document(f"{DRAGOMAN} beside {CTRANSLATE2}", "\n".join(parts), package="dragoman.compare")


def _header(found: Comparison) -> str:
    settings = " · ".join(f"{name} {value}" for name, value in found.settings.items())
    names = f"{found.dragoman.name} and {found.ctranslate2.name}, {counted(found.lines, 'line')}"
    facts = "".join(f'<p class="facts">{escaped(fact)}</p>' for fact in (names, settings))
    return f"<h1>{DRAGOMAN} beside {CTRANSLATE2}</h1>{facts}"


def _tiles(found: Comparison) -> Iterator[str]:
    low, high = min(found.speed_ratios), max(found.speed_ratios)
    spread = f"{low:.2f}x to {high:.2f}x in {found.rounds} rounds" if found.rounds > 1 else "one round"
    yield _tile("speed", f"{found.speed_ratio:.2f}x", spread, ahead=_ahead(found.speed_ratio, 1.0))
    yield _tile("equal lines", f"{found.agreement:.1%}", f"{found.identical} of {found.lines}")
    if found.chrf_between is not None:
        yield _tile("chrF between the two", f"{found.chrf_between:.1f}", "100: the same text")
    if found.dragoman.bleu is not None and found.ctranslate2.bleu is not None:
        difference = found.dragoman.bleu - found.ctranslate2.bleu
        sides = f"{found.dragoman.bleu:.1f} and {found.ctranslate2.bleu:.1f}"
        yield _tile("BLEU", f"{difference:+.1f}", sides, ahead=_ahead(difference, 0.0))
    if found.memory_ratio is not None:
        yield _tile("memory", f"{found.memory_ratio:.2f}x", "with Triton and the server")


def _ahead(value: float, even: float) -> str:
    return "good" if value > even else "bad" if value < even else ""


def _tile(name: str, value: str, note: str, *, ahead: str = "") -> str:
    return f'<div class="tile {ahead}"><span>{name}</span><b>{value}</b><small>{escaped(note)}</small></div>'


def _bars(found: Comparison) -> Iterator[str]:
    dragoman, ctranslate2 = found.dragoman, found.ctranslate2
    yield _bar("lines per second", "more is better", (dragoman.lines_per_s, ctranslate2.lines_per_s), "{:.1f}", found)
    if dragoman.peak_bytes is not None and ctranslate2.peak_bytes is not None:
        sizes = (dragoman.peak_bytes / 1e6, ctranslate2.peak_bytes / 1e6)
        yield _bar("peak memory", "less is better", sizes, "{:.0f} MB", found)
    for name, one, other in (("BLEU", dragoman.bleu, ctranslate2.bleu), ("chrF", dragoman.chrf, ctranslate2.chrf)):
        if one is not None and other is not None:
            yield _bar(name, "against the references", (one, other), "{:.2f}", found)


def _bar(name: str, note: str, values: tuple[float, float], form: str, found: Comparison) -> str:
    """Both from zero, so that lengths are in the ratio of the values."""
    longest = max(*values, 1e-9)
    sides: Sequence[tuple[SideFigures, str, str]] = (
        (found.dragoman, DRAGOMAN, "dragoman"),
        (found.ctranslate2, CTRANSLATE2, "ctranslate2"),
    )
    rows = "".join(
        f'<span title="{escaped(side.name)}">{label}</span>'
        f'<div class="{kind}"><i style="width:{80 * value / longest:.1f}%"></i>{form.format(value)}</div>'
        for (side, label, kind), value in zip(sides, values, strict=True)
    )
    caption = f'<figcaption><b>{name}</b><span class="key">{note}</span></figcaption>'
    return f'<figure class="plot">{caption}<div class="pair">{rows}</div></figure>'


def _differences(found: Comparison) -> Iterator[str]:
    listed = found.differences[:SHOWN_DIFFERENCES]
    if not listed:
        yield "<h2>Lines that differ</h2><p>None: all lines are equal.</p>"
        return
    shown = f"the first {len(listed)} of {len(found.differences)}" if len(found.differences) > len(listed) else len(listed)
    yield f"<h2>Lines that differ ({shown})</h2>"
    yield from map(_difference, listed)


def _difference(one: Difference) -> str:
    dragoman, ctranslate2 = _marked(one.dragoman, one.ctranslate2)
    reference = "" if one.reference is None else f"<dt>reference</dt><dd>{escaped(one.reference)}</dd>"
    return (
        f'<dl class="difference"><dt>line {one.line}</dt><dd class="source">{escaped(one.source)}</dd>'
        f'<dt>{DRAGOMAN}</dt><dd class="dragoman">{dragoman}</dd>'
        f'<dt>{CTRANSLATE2}</dt><dd class="ctranslate2">{ctranslate2}</dd>{reference}</dl>'
    )


def _marked(dragoman: str, ctranslate2: str) -> tuple[str, str]:
    """Both texts with what the other does not have in <mark>."""
    one, other = WORD.findall(dragoman), WORD.findall(ctranslate2)
    if max(len(one), len(other)) > MOST_WORDS:
        return escaped(dragoman), escaped(ctranslate2)
    left, right = list[str](), list[str]()
    for what, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for words, into in ((one[a:b], left), (other[c:d], right)):
            text = escaped("".join(words))
            into.append(text if what == "equal" or not text.strip() else f"<mark>{text}</mark>")
    return "".join(left), "".join(right)
