"""The text for a calibration, and how it is run through the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dragoman.bundle.manifest import SpecialTokens
from dragoman.bundle.tokenizer import Tokenizer
from dragoman.errors import UsageError
from dragoman.export.progress import Advance
from dragoman.export.transformer import Transformer
from dragoman.export.verification.eager import EagerModel
from dragoman.search.options import DecodingOptions

__all__ = ["Batch", "CalibrationText"]

Batch: TypeAlias = Sequence[Sequence[int]]

MAX_SENTENCES = 256
MAX_LENGTH = 96
"""Target tokens after which a sentence is left: a model that repeats itself teaches nothing new."""
BATCH = 32


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """Source sentences as ids."""

    sources: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("calibration needs at least one sentence")

    @classmethod
    def of(cls, sentences: Sequence[str], tokenizer: Tokenizer, max_source_tokens: int) -> CalibrationText:
        """The first sentences of a corpus; more than a few hundred change no range."""
        return cls(tuple(tuple(tokenizer.encode(text)[:max_source_tokens]) for text in sentences[:MAX_SENTENCES]))

    def run(
        self, model: Transformer, tokens: SpecialTokens, advance: Advance, begins: Callable[[Batch], None] = lambda _: None
    ) -> None:
        """Translate everything greedily in fp32; hooks on the model's layers see their usual inputs.

        `begins` is called with each batch before it runs: sources of similar lengths, the shorter ones padded.
        """
        eager, ordered = EagerModel(model, tokens), sorted(self.sources, key=len)
        options = DecodingOptions(beam_size=1, max_length=min(MAX_LENGTH, model.config.max_target_positions - 1))
        for start in range(0, len(ordered), BATCH):
            batch = ordered[start : start + BATCH]
            begins(batch)
            eager.generate(batch, options)
            advance((start + len(batch)) / len(ordered))
