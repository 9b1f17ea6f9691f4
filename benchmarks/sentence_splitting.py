"""Our sentence splitter beside sentencex and pysbd: accuracy on the cases of the tests, speed, and growth on hostile texts.

python -m benchmarks.sentence_splitting        (the other two are measured where they are installed)
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from dragoman.serving.text.sentences import sentence_spans

_CASES = Path(__file__).parents[1] / "tests" / "unit" / "text" / "sentence_cases.py"
_PROSE = "Mr. Smith went to Washington in 1990. He was late! Why? Nobody knows, and nobody asked. "
_HOSTILE = ("“ ", "e. ", "A. ", "1. ", '."', "a\n", "[a. ", "! ", "(", "。")
_CHARACTERS = (5_000, 20_000)
_PROSE_CHARACTERS = 20_000

Split = Callable[[str, str], list[str]]


def _ours(language: str, text: str) -> list[str]:
    return [text[slice(*span)] for span in sentence_spans(text, language) if span is not None]


def _splitters() -> Mapping[str, Split]:
    found: dict[str, Split] = {"ours": _ours}
    if importlib.util.find_spec("sentencex"):
        import sentencex

        found["sentencex"] = lambda language, text: _stripped(sentencex.segment(language, text))
    if importlib.util.find_spec("pysbd"):
        import pysbd

        warnings.simplefilter("ignore")  # its patterns have escapes that Python warns of

        def split(language: str, text: str) -> list[str]:
            known = language if language in pysbd.languages.LANGUAGE_CODES else "en"
            return _stripped(pysbd.Segmenter(language=known, clean=False).segment(text))

        found["pysbd"] = split
    return found


def _stripped(sentences: list[str]) -> list[str]:
    return [sentence.strip() for sentence in sentences if sentence.strip()]


def _milliseconds(split: Split, text: str) -> float:
    began_s = time.perf_counter()
    split("en", text)
    return 1000 * (time.perf_counter() - began_s)


def main() -> None:
    """Print a line for each splitter."""
    sys.path.insert(0, str(_CASES.parent))
    from sentence_cases import CASES, sentences_of, text_of  # type: ignore[import-not-found]

    for name, split in _splitters().items():
        right = sum(split(language, text_of(marked)) == sentences_of(marked) for language, marked in CASES)
        prose = _PROSE * (_PROSE_CHARACTERS // len(_PROSE))
        speed = len(prose) / min(_milliseconds(split, prose) for _ in range(3))
        growth = {
            unit: [min(_milliseconds(split, (unit * size)[:size]) for _ in range(2)) for size in _CHARACTERS]
            for unit in _HOSTILE
        }
        unit, (_, longest_ms) = max(growth.items(), key=lambda item: item[1][1])
        print(f"{name:10} {right} of {len(CASES)} texts, {speed:,.0f} characters/ms, slowest text {unit!r}:")
        print(f"           {longest_ms:.1f} ms for {_CHARACTERS[1]:,} characters; times the growth of the text (x4):")
        print("           " + ", ".join(f"{unit!r} {times[1] / times[0]:.1f}" for unit, times in growth.items()))


if __name__ == "__main__":
    main()
