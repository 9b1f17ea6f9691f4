"""Which languages a multilingual model is verified with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.bundle.manifest import Languages
from dragoman.bundle.tokenizer import Tokenizer

__all__ = ["VerifiedLanguages"]

USUAL_SOURCES = ("eng_Latn", "en", "en_XX", "eng")
USUAL_TARGETS = ("deu_Latn", "de", "de_DE", "deu", "fra_Latn", "fr", "fr_XX", "fra", "jpn_Jpan", "ja", "ja_XX")
"""The sentences that come with dragoman are English."""
TARGETS = 2


@dataclass(frozen=True, slots=True)
class VerifiedLanguages:
    """How sentences become sources, and which first tokens are forced; empty for a model without language tokens."""

    tokenizer: Tokenizer
    languages: Languages | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The target languages: the default and usual ones first."""
        if self.languages is None or self.languages.target_place == "decoder_start":
            return ()
        known = self.languages.tokens
        wanted = [self.languages.default_target, *USUAL_TARGETS, *(code for code in known if code != self._source)]
        return tuple(dict.fromkeys(code for code in wanted if code is not None and code in known))[:TARGETS]

    @property
    def forced(self) -> dict[str, int]:
        """Forced first tokens by the name of their language."""
        if self.languages is None or self.languages.target_place != "forced_bos":
            return {}
        return {code: self.languages.tokens[code] for code in self.targets}

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The sources; where the target language stands in the source, sentences take turns: a batch has several."""
        return [self.tokenizer.encode(text, *self._around(at)) for at, text in enumerate(sentences)]

    def _around(self, at: int) -> tuple[list[int] | None, list[int] | None]:
        languages, targets = self.languages, self.targets
        if languages is None:
            return None, None
        source = [] if self._source is None else [languages.tokens[self._source]]
        end = self.tokenizer.encode("")[-1:]
        before = source if languages.source_place == "before" else []
        if languages.target_place == "source_before" and targets:
            before = [languages.tokens[targets[at % len(targets)]], *before]
        return before, [*end, *(source if languages.source_place == "after" else [])]

    @property
    def _source(self) -> str | None:
        if self.languages is None:
            return None
        wanted = (self.languages.default_source, *USUAL_SOURCES, *self.languages.tokens)
        return next((code for code in wanted if code is not None and code in self.languages.tokens), None)
