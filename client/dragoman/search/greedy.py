"""Width one: greedy search, and sampling, which only picks differently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.search.batch import SearchBatch, TokenIds
from dragoman.search.constraints import Ids, Scores
from dragoman.search.hypothesis import Hypothesis
from dragoman.search.sampling import Sampler

__all__ = ["GreedyBatch"]


class GreedyBatch(SearchBatch):
    """Takes the best token, or a drawn one. Processors work on raw logits, as in Hugging Face `generate`."""

    _columns = (*SearchBatch._columns, "_total")
    _wanted = 1

    def __init__(self, tokens: TokenIds, vocabulary: int) -> None:
        super().__init__(1, tokens, vocabulary)
        self._total = np.zeros(len(self._length), np.float64)  # sum of the log-probabilities
        self._samplers: list[Sampler | None] = []

    def hypotheses(self, group: int) -> tuple[Hypothesis, ...]:
        options, length = self._options[group], int(self._length[group])
        tokens = tuple(self._sequence[group, 0, 1:length].tolist())
        score = float(self._total[group]) / (length - int(self._prompt[group])) ** options.length_penalty
        return (Hypothesis(tokens, score, "eos" if tokens[-1] == self._eos else "length"),)

    def decided(self, group: int) -> tuple[int, ...]:
        decided = max(self._length[group], self._prompt[group])
        return tuple(self._sequence[group, 0, 1:decided].tolist())

    def _start_group(self, group: int) -> None:
        self._total[group] = 0.0
        self._samplers.append(Sampler(self._options[group]) if self._options[group].sampling else None)

    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:  # noqa: ARG002
        return logits

    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:
        groups = self._every[live]
        picked = scores[:, 0].argmax(-1)  # (live,)
        if any(self._samplers):
            for at, group in enumerate(groups.tolist()):
                sampler = self._samplers[group]
                if sampler is not None:
                    picked[at] = sampler.pick(scores[at, 0])
        index = self._every[: len(groups)]
        chosen = tokens[index, 0, picked]
        self._total[live] += log_probs[index, 0, picked]
        length = self._length[live].copy()
        self._sequence[groups, 0, length] = chosen
        self._length[live] = length + 1
        ended = (chosen == self._eos) | (length + 1 == self._limit[live])
        done: list[int] = groups[ended][::-1].tolist()
        return done

    def _wanted_by(self, group: int) -> int:
        options = self._options[group]
        return (options.top_k or self.vocabulary) if options.sampling else self._wanted

    def _lists(self) -> Sequence[list[object]]:
        return [*super()._lists(), self._samplers]  # type: ignore[list-item]
