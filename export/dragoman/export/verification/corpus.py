"""The sentences of a verification, with references when there are any."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dragoman.errors import UsageError

__all__ = ["Corpus", "bundled_corpus", "read_corpus"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Source sentences; `references[i]` are the translations of sentence i, empty when unknown."""

    sentences: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]

    @property
    def has_references(self) -> bool:
        """Whether every sentence has a reference, so that scores against them mean something."""
        return all(self.references)

    def prefixed(self, prefix: str) -> Corpus:
        """The same with `prefix` before each sentence, as a model of several tasks takes them."""
        return Corpus(tuple(prefix + sentence for sentence in self.sentences), self.references)

    def first(self, count: int) -> Corpus:
        """The first `count` sentences."""
        return Corpus(self.sentences[:count], self.references[:count])


def read_corpus(path: Path) -> Corpus:
    """A sentence a line; references, if any, after tabs on the same line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--verify-file {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--verify-file {path} is not UTF-8 (byte {error.start})") from error
    corpus = _parsed(text)
    if not corpus.sentences:
        raise UsageError(f"--verify-file {path} holds no sentence; put one on each line")
    return corpus


def bundled_corpus() -> Corpus:
    """Sentences that come with dragoman: short and long, with numbers, quotes and accents; no references."""
    return _parsed((files("dragoman.export") / "sentences.txt").read_text(encoding="utf-8"))


def _parsed(text: str) -> Corpus:
    rows = [line.split("\t") for line in text.splitlines() if line.strip()]
    return Corpus(tuple(row[0] for row in rows), tuple(tuple(filter(None, row[1:])) for row in rows))
