"""What tags and placeholders come to: `python -m benchmarks.markup BUNDLE PAIRS.tsv TEMPLATES`.

PAIRS.tsv has a source, a tab and its reference in each line. In one process, without Triton; nothing is enforced by hand.

Tags: a word of each source is put between tags, where its translation is known from elsewhere: from words that stand in
the same pairs again and again (Dice coefficient), not from the model. A tag is right if it encloses that word of the
translation. Placeholders: the templates are sentences with <1>, <2> … for placeholders, in the order that a translation
keeps. Time: pages of marked sentences, and placeholders, against the same sentences as plain text, in turn; the median
ratio and its quartiles.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple, TypeVar

from dragoman.search import DecodingOptions
from dragoman.serving.engine import Forcing, Sequence
from dragoman.serving.in_process import LoadedModel, open_model
from dragoman.serving.text.aligning import SpannedText, links_between
from dragoman.serving.text.document import Document
from dragoman.serving.text.fitting import Measure
from dragoman.serving.text.formats import TextFormat, blocks_of
from dragoman.serving.text.links import Link
from dragoman.serving.text.planning import Splitting, plan_document
from dragoman.serving.text.protection import Protection
from dragoman.serving.text.stand_ins import StandIns

__all__ = ["Pipeline", "main"]

T = TypeVar("T")
_WHOLE_WORD = re.compile(r"(?<!['’\w])[^\W\d_]+(?!['’\w])")
_WORD = re.compile(r"[^\W\d_]+")
_KINDS = (
    "https://example.org/a?b=1",
    "{name}",
    "%s",
    "{{ user.id }}",
    "anna@example.org",
    "5 km",
    "`x_y`",
    "😀",
    "20 %",
    "${A}",
)
_FEWEST, _LEAST_DICE = 4, 0.6
_SENTENCES_IN_A_PAGE = 20


class Pipeline:
    """Texts as a request's: planned, decoded together, restored and joined."""

    def __init__(self, model: LoadedModel, options: DecodingOptions | None = None) -> None:
        self._model, self._options = model, options or model.manifest.generation
        self.stand_ins = StandIns(model.tokenizer, model.translate_shortly)

    def translate(self, texts: Iterable[str], text_format: TextFormat, *, placeholders: bool = True) -> list[str]:
        """The translations of all texts, decoded together."""
        documents = [self._plan(text, text_format, placeholders=placeholders) for text in texts]
        sequences = [
            Sequence(
                tuple(self._model.tokenizer.encode(part.text)),
                part.options(self._options),
                forcing=Forcing() if part.needs_links else None,
            )
            for document in documents
            for part in document.parts
        ]
        self._model.run(sequences)
        ended = iter(sequences)
        return [self._joined(document, ended) for document in documents]

    def _plan(self, text: str, text_format: TextFormat, *, placeholders: bool) -> Document:
        tokenizer = self._model.tokenizer
        protection = Protection(tokenizer, self.stand_ins, self._options, keeps_placeholders=placeholders)
        blocks = _run(blocks_of(text, text_format, protection))
        measure = Measure(lambda piece: len(tokenizer.encode(piece)), self._model.manifest.dimensions.max_source_tokens)
        return _run(plan_document(blocks, measure, Splitting()))

    def _joined(self, document: Document, ended: Iterable[Sequence]) -> str:
        tokenizer, pieces = self._model.tokenizer, [document.gaps[0]]
        for part, gap, sequence in zip(document.parts, document.gaps[1:], ended, strict=False):
            if sequence.error is not None:
                raise sequence.error
            best = sequence.hypotheses[0]
            links: tuple[Link, ...] = ()
            if sequence.forced:
                source = SpannedText(part.text, tokenizer.source_spans(part.text))
                target = SpannedText(tokenizer.decode(best.tokens), tokenizer.target_spans(best.tokens))
                links = links_between(source, target, sequence.forced[0].alignment)
            pieces += (part.restored(tokenizer.decode(best.tokens), links), gap)
        return "".join(pieces)


def _run(slices: Generator[None, None, T]) -> T:
    """What a generator returns in the end."""
    found: list[T] = []

    def whole() -> Generator[None, None, None]:
        found.append((yield from slices))

    for _ in whole():
        pass
    return found[0]


class Case(NamedTuple):
    """A sentence, one word of it, and that word in German."""

    source: str
    word: str
    translated: str


def word_pairs(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Words that stand in the same pairs: each with the word that it is nearly always beside."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in pairs:
        own, other = set(_WORD.findall(source.lower())), set(_WORD.findall(target))
        sources.update(own)
        targets.update(other)
        for word in own:
            together[word].update(other)
    found = {}
    for word, count in sources.items():
        if count < _FEWEST:
            continue
        best, shared = max(together[word].items(), key=lambda one: 2 * one[1] / (count + targets[one[0]]))
        if 2 * shared / (count + targets[best]) >= _LEAST_DICE:
            found[word] = best
    return found


def tag_cases(pairs: list[tuple[str, str]], dice: random.Random) -> list[Case]:
    """One word of each sentence that has one with a known translation."""
    known, cases = word_pairs(pairs), []
    for source, _ in pairs:
        words = _WORD.findall(source)
        whole = set(_WHOLE_WORD.findall(source))  # "don't" has no word of its own for each half
        possible = [word for word in words if words.count(word) == 1 and word in whole and word.lower() in known]
        if len(words) > 3 and possible:
            word = dice.choice(possible)
            cases.append(Case(source, word, known[word.lower()]))
    return cases


def report_tags(pipeline: Pipeline, cases: list[Case]) -> None:
    """Print how many tags are kept, and how many stand around the right word."""
    pages = [re.sub(rf"\b{case.word}\b", f'<b id="x">{case.word}</b>', f"<p>{case.source}</p>") for case in cases]
    kept = judged = right = within = 0
    for case, page in zip(cases, pipeline.translate(pages, "html"), strict=True):
        kept += page.count('<b id="x">') == page.count("</b>") == 1
        text = re.sub("<[^>]*>", "", page)
        if len(re.findall(rf"\b{case.translated}\b", text)) == 1:
            judged += 1
            right += f'<b id="x">{case.translated}</b>' in page
            inside = re.search('<b id="x">(.*?)</b>', page)
            within += inside is not None and re.search(rf"\b{case.translated}\b", inside.group(1)) is not None
    print(f"tags: {len(cases)} sentences, kept {kept / len(cases):.1%}")
    print(f"      the word's known translation is in {judged} of the translations; inside the tag in {within / judged:.1%},")
    print(f"      alone in it in {right / judged:.1%}")


def filled(template: str, kinds: Iterable[str]) -> tuple[str, list[str]]:
    """A template with placeholders, and these in order."""
    own: list[str] = []
    each = iter(kinds)

    def next_one(_: re.Match[str]) -> str:
        own.append(next(each))
        return own[-1]

    return re.sub(r"<\d>", next_one, template), own


def report_placeholders(pipeline: Pipeline, templates: list[str], dice: random.Random, rounds: int) -> None:
    """Print how many sentences keep all placeholders, and in their order."""
    rows: dict[int, list[tuple[str, list[str]]]] = defaultdict(list)
    for _ in range(rounds):
        for template in templates:
            text, own = filled(template, dice.sample(_KINDS, len(_KINDS)))
            rows[len(own)].append((text, own))
    print(f"stand-ins: {', '.join(pipeline.stand_ins.for_text('')[:10])} …")
    print("| placeholders in a sentence | sentences | all kept | in order |")
    print("|---|---|---|---|")
    for count, texts in sorted(rows.items()):
        found = pipeline.translate([text for text, _ in texts], "text")
        kept = [all(text.count(one) == 1 for one in own) for text, (_, own) in zip(found, texts, strict=True)]
        places = [[text.find(one) for one in own] for text, (_, own) in zip(found, texts, strict=True)]
        in_order = [place == sorted(place) for place in places]
        print(f"| {count} | {len(texts)} | {sum(kept) / len(kept):.1%} | {sum(in_order) / len(in_order):.1%} |")


def report_time(pipeline: Pipeline, cases: list[Case], rounds: int) -> None:
    """Print the ratio of times: pages with tags, and sentences with a placeholder, against plain text."""
    plain = [case.source for case in cases]
    marked = [re.sub(rf"\b{case.word}\b", f"<b>{case.word}</b>", f"<p>{case.source}</p>") for case in cases]
    size = _SENTENCES_IN_A_PAGE
    pages = ["\n".join(marked[at : at + size]) for at in range(0, len(marked), size)]
    held = [re.sub(rf"\b{case.word}\b", "{x}", case.source) for case in cases]
    sides: tuple[tuple[str, list[str], TextFormat], ...] = (
        ("text", plain, "text"),
        ("a tag in each sentence", pages, "html"),
        ("a placeholder in each sentence", held, "text"),
    )
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds + 1):
        for name, texts, text_format in sides:
            began_s = time.perf_counter()
            pipeline.translate(texts, text_format)
            took[name].append(time.perf_counter() - began_s)
    for name, _, _ in sides[1:]:
        ratios = [own / base for own, base in zip(took[name][1:], took["text"][1:], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        print(f"time, {name}: {middle:.2f} ({low:.2f} to {high:.2f}) of plain text, {len(plain)} sentences, {rounds} rounds")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pairs", type=Path, nargs="+")
    parser.add_argument("--templates", type=Path, default=Path(__file__).with_name("placeholder_templates.txt"))
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=0, help="of the measurement of time")
    arguments = parser.parse_args()
    lines = [line.split("\t") for path in arguments.pairs for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [(columns[0], columns[1]) for columns in lines if len(columns) > 1]
    dice = random.Random(1)
    pipeline = Pipeline(open_model(arguments.bundle), DecodingOptions(beam_size=arguments.beam))
    cases = tag_cases(pairs, dice)
    print(f"{arguments.bundle}: beam {arguments.beam}")
    if arguments.rounds:
        report_time(pipeline, cases[:100], arguments.rounds)
        return
    report_tags(pipeline, cases)
    report_placeholders(pipeline, arguments.templates.read_text(encoding="utf-8").splitlines(), dice, rounds=3)


if __name__ == "__main__":
    main()
