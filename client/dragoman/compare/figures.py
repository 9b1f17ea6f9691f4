"""What a comparison found: agreement, quality, speed and memory."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.compare.sides import Run

__all__ = ["Comparison", "Difference", "SideFigures", "compared"]


@dataclass(frozen=True, slots=True)
class SideFigures:
    """One side: medians of the rounds."""

    name: str
    seconds: float
    lines_per_s: float
    peak_bytes: int | None
    bleu: float | None
    chrf: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A line that the two translate differently."""

    line: int
    source: str
    dragoman: str
    ctranslate2: str
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`speed_ratio` above 1: the bundle is faster; the median of the rounds, and the least and greatest of them."""

    dragoman: SideFigures
    ctranslate2: SideFigures
    lines: int
    rounds: int
    identical: int
    chrf_between: float | None
    speed_ratio: float
    speed_ratios: tuple[float, ...]
    memory_ratio: float | None
    settings: dict[str, str]
    differences: tuple[Difference, ...]

    @property
    def agreement(self) -> float:
        """The share of lines with the same translation."""
        return self.identical / self.lines

    def to_json(self) -> str:
        """All of it."""
        return json.dumps({**dataclasses.asdict(self), "agreement": self.agreement}, ensure_ascii=False, indent=2)


def compared(
    names: tuple[str, str],
    rounds: Sequence[tuple[Run, Run]],
    sources: Sequence[str],
    references: Sequence[str] | None,
    settings: dict[str, str],
) -> Comparison:
    """The figures of interleaved rounds; texts are those of the first."""
    first_dragoman, first_ctranslate2 = rounds[0]
    pairs = list(zip(sources, first_dragoman.texts, first_ctranslate2.texts, strict=True))
    ratios = tuple(ctranslate2.seconds / dragoman.seconds for dragoman, ctranslate2 in rounds)
    dragoman, ctranslate2 = (
        _side(name, [one[at] for one in rounds], len(sources), references) for at, name in enumerate(names)
    )
    memory = dragoman.peak_bytes / ctranslate2.peak_bytes if dragoman.peak_bytes and ctranslate2.peak_bytes else None
    return Comparison(
        dragoman=dragoman,
        ctranslate2=ctranslate2,
        lines=len(sources),
        rounds=len(rounds),
        identical=sum(one == other for _, one, other in pairs),
        chrf_between=_quality(first_dragoman.texts, first_ctranslate2.texts)[1],
        speed_ratio=statistics.median(ratios),
        speed_ratios=ratios,
        memory_ratio=memory,
        settings=settings,
        differences=tuple(
            Difference(line, source, one, other, None if references is None else references[line - 1])
            for line, (source, one, other) in enumerate(pairs, 1)
            if one != other
        ),
    )


def _side(name: str, runs: Sequence[Run], lines: int, references: Sequence[str] | None) -> SideFigures:
    seconds = statistics.median(run.seconds for run in runs)
    peaks = [run.peak_bytes for run in runs if run.peak_bytes is not None]
    bleu, chrf = _quality(runs[0].texts, references) if references is not None else (None, None)
    return SideFigures(name, seconds, lines / seconds, max(peaks, default=None), bleu, chrf)


def _quality(texts: Sequence[str], references: Sequence[str]) -> tuple[float | None, float | None]:
    """BLEU and chrF; none where sacreBLEU is not installed."""
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        return None, None
    # of the effective order: else texts of fewer than four words score 0, even equal ones
    bleu, streams = BLEU(effective_order=True), [list(references)]
    return bleu.corpus_score(list(texts), streams).score, CHRF().corpus_score(list(texts), streams).score
