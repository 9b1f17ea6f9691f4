"""BLEU and chrF of translations (sacreBLEU), and the loss against others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF

__all__ = ["Quality", "score"]


@dataclass(frozen=True, slots=True)
class Quality:
    """Corpus scores from 0 to 100."""

    bleu: float
    chrf: float


def score(translations: Sequence[str], references: Sequence[Sequence[str]]) -> Quality:
    """Corpus BLEU and chrF; `references[i]` are all the accepted translations of sentence i."""
    most = max(len(several) for several in references)
    # sacreBLEU wants one list a reference number; None stands for a sentence that has fewer.
    streams = [[several[i] if i < len(several) else None for several in references] for i in range(most)]
    return Quality(  # of the effective order: else texts of fewer than four words score 0, even equal ones
        bleu=BLEU(effective_order=True).corpus_score(list(translations), streams).score,
        chrf=CHRF().corpus_score(list(translations), streams).score,
    )
