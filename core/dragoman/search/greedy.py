"""Width one: greedy search, and sampling, which only picks differently."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from dragoman.search.batch import SearchBatch
from dragoman.search.constraints import Ids, Scores
from dragoman.search.hypothesis import Hypothesis
from dragoman.search.initial_state import TokenIds
from dragoman.search.sampling import Sampler

__all__ = ["GreedyBatch"]


class GreedyBatch(SearchBatch):
    """Takes the best token, or draws one. Processors work on raw logits, as in Hugging Face `generate`."""

    _wanted = 1

    def __init__(self, tokens: TokenIds, vocabulary: int, choices: int | None = None) -> None:
        super().__init__(1, tokens, vocabulary, choices)
        self._total: list[float] = []  # sum of the log-probabilities
        self._samplers: list[Sampler | None] = []
        self._lists += (self._total, self._samplers)
        self._ahead = 0  # steps of `advance_best` that the arrays do not know of yet

    @property
    def takes_best(self) -> bool:
        """Whether the next step most likely generates the best tokens: `advance_best` needs no other candidates."""
        if self._individual:
            return False
        if self._uneventful <= 0:
            self._catch_up()
        return self._uneventful_steps() > 0

    @property
    def follows_best(self) -> bool:
        """Whether the last step generated the best tokens, which are fed next, in the same batch."""
        return self._ahead > 0

    def advance_best(self, tokens: list[int], log_probs: list[float]) -> list[int] | None:
        """`advance` for a step that `takes_best`, given the best token of each sequence; makes no numpy calls.

        None, with nothing changed, when a token is forbidden: `advance` then chooses another from more candidates.
        """
        if not self._banned_somewhere.isdisjoint(tokens):
            return None
        self._ahead += 1
        self._uneventful -= 1
        return self._append_to_all(tokens, log_probs)

    def hypotheses(self, sequence: int) -> tuple[Hypothesis, ...]:
        options, tokens = self._options[sequence], tuple(self._history[sequence][0][1:])
        score = self._total[sequence] / (len(tokens) - len(options.prefix)) ** options.length_penalty
        return (Hypothesis(tokens, score, "eos" if tokens[-1] in self._ends else "length"),)

    def decided(self, sequence: int) -> tuple[int, ...]:
        prefix, tokens = self._options[sequence].prefix, self._history[sequence][0]
        return tuple(tokens[1:]) if len(tokens) > len(prefix) else prefix

    def _start_sequence(self, sequence: int) -> None:
        self._total.append(0.0)
        self._samplers.append(Sampler(self._options[sequence]) if self._options[sequence].sampling else None)

    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:  # noqa: ARG002
        return logits

    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:
        sequences = self._every[live]
        picked = scores[:, 0].argmax(-1)  # (live,)
        if self._individual:
            for at, sequence in enumerate(sequences.tolist()):
                sampler = self._samplers[sequence]
                if sampler is not None:
                    picked[at] = sampler.pick(scores[at, 0])
        index = self._every[: len(sequences)]
        chosen, gained = tokens[index, 0, picked], log_probs[index, 0, picked]
        ended = self._append(sequences.tolist(), chosen.tolist(), gained.tolist())
        self._fed[live, 0] = chosen
        self._length[live] += 1
        at_limit = sequences[self._length[live] == self._limit[live]].tolist()
        return sorted({*ended, *at_limit}, reverse=True)

    def _go_on(self, tokens: Ids, log_probs: Scores) -> list[int] | None:
        n, chosen = self._count, tokens[:, 0, 0]
        generated = chosen.tolist()
        if not self._banned_somewhere.isdisjoint(generated):
            return None
        self._fed[:n, 0] = chosen
        self._length[:n] += 1
        return self._append_to_all(generated, log_probs[:, 0, 0].tolist())

    def _catch_up(self) -> None:
        if self._ahead:
            self._length[: self._count] += self._ahead
            self._fed[: self._count, 0] = [rows[0][-1] for rows in self._history]
            self._ahead = 0

    def _append(self, sequences: Sequence[int], tokens: list[int], log_probs: list[float]) -> list[int]:
        """Append the next token of each sequence; those that have come to their end."""
        for sequence, token, log_prob in zip(sequences, tokens, log_probs, strict=True):
            self._history[sequence][0].append(token)
            self._total[sequence] += log_prob
        return [sequence for sequence, token in zip(sequences, tokens, strict=True) if token in self._ends]

    def _append_to_all(self, tokens: list[int], log_probs: list[float]) -> list[int]:
        """The same for every sequence, which is most steps; those that have come to their end, highest first."""
        for rows, token in zip(self._history, tokens, strict=True):
            rows[0].append(token)
        self._total[:] = map(operator.add, self._total, log_probs)
        if self._ends.isdisjoint(tokens):
            return []
        return [sequence for sequence in range(self._count - 1, -1, -1) if tokens[sequence] in self._ends]

    def _is_individual(self, sequence: int) -> bool:
        return super()._is_individual(sequence) or self._options[sequence].sampling

    def _wanted_by(self, sequence: int) -> int:
        options = self._options[sequence]
        return (options.top_k or self.choices) if options.sampling else self._wanted
