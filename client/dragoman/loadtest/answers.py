"""Whether the answers stayed the same under load, and how good they were."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass, field

from dragoman.loadtest.workload import Workload

__all__ = ["Answers", "Quality", "bleu_available"]


@dataclass(frozen=True, slots=True)
class Quality:
    """What the answers of a run were worth; `bleu` is None without references."""

    items: int
    changing_items: int
    bleu: float | None
    signature: str | None


@dataclass(slots=True)
class Answers:
    """How often each item of the workload got which answer. Without references a digest of the text is enough."""

    keep_texts: bool
    seen: dict[int, dict[str, int]] = field(default_factory=dict)

    def record(self, item: int, text: str) -> None:
        key = text if self.keep_texts else hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        texts = self.seen.setdefault(item, {})
        texts[key] = texts.get(key, 0) + 1

    def add(self, other: Answers) -> None:
        for item, texts in other.seen.items():
            mine = self.seen.setdefault(item, {})
            for text, count in texts.items():
                mine[text] = mine.get(text, 0) + count

    def quality(self, workload: Workload) -> Quality:
        changing = sum(len(texts) > 1 for texts in self.seen.values())
        if not (self.keep_texts and self.seen):
            return Quality(len(self.seen), changing, None, None)
        bleu, signature = self._bleu(workload)
        return Quality(len(self.seen), changing, bleu, signature)

    def _bleu(self, workload: Workload) -> tuple[float, str]:
        """Corpus BLEU over every item that was answered, each with its most frequent answer."""
        from sacrebleu.metrics import BLEU

        items = sorted(self.seen)
        texts = [max(self.seen[item], key=lambda text: (self.seen[item][text], text)) for item in items]
        references = [workload.items[item].references for item in items]
        columns = [
            [row[column] if column < len(row) else None for row in references] for column in range(max(map(len, references)))
        ]
        metric = BLEU(effective_order=True)  # else texts of fewer than four words score 0
        return float(metric.corpus_score(texts, columns).score), str(metric.get_signature())


def bleu_available() -> bool:
    """Whether sacrebleu, which a bare install leaves out, is there."""
    return importlib.util.find_spec("sacrebleu") is not None
