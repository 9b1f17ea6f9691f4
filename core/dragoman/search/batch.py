"""Many searches of one beam width that advance together.

A sequence is one source with its own options and its own position. What is computed for all sequences at once lies in
arrays with a leading axis of sequences; token histories, which only grow, lie in lists: between two steps of a model nothing
of numpy is in the processor's caches, and a call of it costs ten times what a list does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.search.constraints import HistoryRules, Ids, Scores
from dragoman.search.hypothesis import Hypothesis
from dragoman.search.initial_state import FEW, NO_TOKEN, SINGLE, InitialStates, TokenIds
from dragoman.search.options import DecodingOptions

__all__ = ["SearchBatch", "TokenIds"]

_SEQUENCES = 8


class SearchBatch(ABC):
    """Searches side by side: `join`, then step with `tokens`, `positions` and `parents`, then `advance`, till done.

    A sequence's rows are fed its start token and forced prefix one by one; what the model predicts meanwhile is ignored.
    """

    _columns: tuple[str, ...] = ()  # arrays with a row for each sequence, beside the whole numbers

    # Columns of `_numbers`, which lie side by side: a sequence joins and leaves with one copy.
    _fed: Ids  # (sequences, width): the last tokens of _history, which are fed next
    _parents: Ids  # (sequences, width)
    _length: Ids  # tokens of each row in _history
    _prompt: Ids  # tokens that are given: start and prefix
    _limit: Ids  # the length at which a row ends
    _shortest: Ids  # below this length the end tokens are forbidden
    _need: Ids  # candidates for the next step
    _uneventful_from: Ids  # from this length on nothing needs special treatment until the limit
    _banned: Ids  # (sequences, FEW)
    _forced: Ids  # (sequences, 2): first and last token

    def __init__(self, width: int, tokens: TokenIds, vocabulary: int, choices: int | None = None) -> None:
        """Of the `vocabulary` a model with a shortlist gives `choices` tokens at most; others give all."""
        self.width = width
        self._ends = frozenset(tokens.ends)
        self.choices = vocabulary if choices is None else choices
        self._count = 0
        self._every = np.arange(_SEQUENCES)
        self._rows = np.arange(width)
        self._history: list[list[list[int]]] = []  # of each row of each sequence: start, prefix and what was generated
        self._most_needed: int | None = None  # the largest of _need, once it was needed
        self._lay_out(np.zeros((_SEQUENCES, 2 * width + SINGLE + FEW + 2), np.int64))
        self._initial_states = InitialStates(width, tokens, vocabulary)
        self._options: list[DecodingOptions] = []
        self._touched: list[int] = []  # tokens that the options without history may forbid
        self._rules: list[HistoryRules | None] = []
        self._lists: list[list[Any]] = [self._options, self._history, self._touched, self._rules]  # an item a sequence
        self._uneventful = 0  # so many steps at least nothing special will happen to any sequence
        self._individual = 0  # sequences that a step must look at one by one
        self._ban_columns = 0  # columns of _banned that are in use
        self._banned_somewhere: set[int] = set()  # tokens of _banned; of sequences that have left, too

    # What the next step needs.

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Ids:
        """(sequences, width): what to feed next."""
        self._catch_up()
        return self._fed[: self._count]

    @property
    def positions(self) -> Ids:
        """(sequences,): how many tokens each row of a sequence was fed before."""
        self._catch_up()
        return self._length[: self._count] - 1

    @property
    def parents(self) -> Ids:
        """(sequences, width): the row of the same sequence at the previous step that each row continues."""
        return self._parents[: self._count]

    @property
    def candidates(self) -> int:
        """How many best tokens the next step must give at least; more do no harm."""
        if self._most_needed is None:
            self._most_needed = int(self._need[: self._count].max(initial=1))
        return self._most_needed

    def scored_tokens(self) -> Ids | None:
        """(sequences, width, any number): tokens whose log-probabilities the next step must give, too; -1 for none.

        They come behind the candidates, in this order, with log-probabilities of -inf where there is none.
        A step that can give them takes what this returned right before it.
        """
        return None

    def options(self, sequence: int) -> DecodingOptions:
        return self._options[sequence]

    # Joining and leaving.

    def join(self, options: DecodingOptions) -> int:
        """Start a search; its sequence number, which is the highest."""
        initial = self._initial_states.of(options)
        self._catch_up()
        self._make_room()
        sequence = self._count
        self._history.append([[initial.start] for _ in range(self.width)])
        self._numbers[sequence] = initial.numbers
        self._options.append(options)
        self._touched.append(initial.touched)
        self._rules.append(initial.rules())
        self._uneventful = min(self._uneventful, initial.uneventful_steps)
        self._ban_columns = max(self._ban_columns, len(initial.few))
        self._banned_somewhere.update(initial.few)
        self._individual += self._is_individual(sequence)
        self._count += 1
        self._start_sequence(sequence)
        self._look_ahead(sequence)
        return sequence

    def leave(self, sequence: int) -> None:
        """Forget a search; the last sequence takes its number."""
        self._catch_up()
        last = self._count - 1
        self._individual -= self._is_individual(sequence)
        self._most_needed = None
        self._numbers[sequence] = self._numbers[last]
        for name in self._columns:
            column = getattr(self, name)
            column[sequence] = column[last]
        for listed in self._lists:
            listed[sequence] = listed[last]
            listed.pop()
        self._count = last

    # The step.

    def advance(self, best_tokens: Ids | npt.NDArray[np.int32], best_log_probs: Scores, best_logits: Scores) -> list[int]:
        """Take the best next tokens of each row, best first, any shape that reads as (sequences, width, candidates).

        The `scored_tokens` of this step stand behind them. Returns the sequences that are done, highest first, so that they
        can `leave` in this order.
        """
        self._catch_up()
        n, shape = self._count, (self._count, self.width, -1)
        tokens = best_tokens.reshape(shape).astype(np.int64, copy=False)
        log_probs = best_log_probs.reshape(shape)
        uneventful = self._is_uneventful()
        if uneventful and not self._individual and (ended := self._go_on(tokens, log_probs)) is not None:
            return ended
        tokens, scores, log_probs = self._constrained(tokens, log_probs, best_logits.reshape(shape), uneventful)
        live: slice | Ids = slice(0, n)
        changed = [sequence for sequence, rules in enumerate(self._rules) if rules is not None] if self._individual else []
        if not uneventful and (feeding := self._length[:n] < self._prompt[:n]).any():
            fed, live = np.flatnonzero(feeding).tolist(), np.flatnonzero(~feeding)
            for sequence in fed:
                self._feed(sequence)
            changed += fed
            tokens, scores, log_probs = tokens[live], scores[live], log_probs[live]
        done = self._choose(live, tokens, scores, log_probs) if len(tokens) else []
        for sequence in changed:
            self._look_ahead(sequence)
        return done

    def _feed(self, sequence: int) -> None:
        """The next token of the sequence's prefix, whatever the model predicts."""
        token = self._options[sequence].prefix[self._length[sequence] - 1]
        for tokens in self._history[sequence]:
            tokens.append(token)
        self._fed[sequence] = token
        self._length[sequence] += 1

    def _is_uneventful(self) -> bool:
        """Whether no sequence needs special treatment: true of most steps, which skip all of it."""
        uneventful_steps = self._uneventful_steps()
        self._uneventful -= uneventful_steps > 0
        return uneventful_steps > 0

    def _uneventful_steps(self) -> int:
        """So many steps from now on, at least, are uneventful."""
        if self._uneventful <= 0:
            n, length = self._count, self._length[: self._count]
            special = not n or bool((length < self._uneventful_from[:n]).any())
            self._uneventful = 0 if special else int((self._limit[:n] - 1 - length).min())
        return self._uneventful

    @abstractmethod
    def hypotheses(self, sequence: int) -> tuple[Hypothesis, ...]:
        """The answer of a sequence that is done, best first."""

    @abstractmethod
    def decided(self, sequence: int) -> tuple[int, ...]:
        """Tokens of the answer that can't change any more: prefix and generated ones."""

    # What greedy and beam search do differently.

    _wanted: int  # candidates of a row that no rule touches

    @abstractmethod
    def _start_sequence(self, sequence: int) -> None: ...

    @abstractmethod
    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:
        """Whichever of the two the processors work on."""

    @abstractmethod
    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:
        """Extend the rows of the sequences `live`; (live, width, candidates) each, `scores` processed."""

    @abstractmethod
    def _go_on(self, tokens: Ids, log_probs: Scores) -> list[int] | None:
        """`_choose` for all sequences in a step without rules to apply or limits to reach: most steps.

        None, and nothing has changed, when a banned token would be chosen.
        """

    @abstractmethod
    def _catch_up(self) -> None:
        """Bring the arrays up to date with steps that were only counted."""

    def _is_individual(self, sequence: int) -> bool:
        return self._rules[sequence] is not None

    # Processors.

    def _constrained(self, tokens: Ids, log_probs: Scores, logits: Scores, uneventful: bool) -> tuple[Ids, Scores, Scores]:
        """Tokens, processed scores and log-probabilities."""
        n = self._count
        scores = self._scored(log_probs, logits).astype(np.float32)  # a copy: the arrays belong to the runtime
        for sequence, rules in enumerate(self._rules) if self._individual else ():
            if rules is not None and self._length[sequence] >= self._prompt[sequence]:
                rules.apply(tokens[sequence], scores[sequence])
        for column in range(self._ban_columns):
            scores[tokens == self._banned[:n, column, None, None]] = -np.inf
        if uneventful:
            return tokens, scores, log_probs
        early = self._length[:n] < self._shortest[:n]
        if early.any():
            for end in self._ends:
                scores[(tokens == end) & early[:, None, None]] = -np.inf
        return self._with_forced(tokens, scores, log_probs)

    def _with_forced(self, tokens: Ids, scores: Scores, log_probs: Scores) -> tuple[Ids, Scores, Scores]:
        n = self._count
        at_start = (self._length[:n] == 1) & (self._forced[:n, 0] != NO_TOKEN)
        at_end = (self._length[:n] == self._limit[:n] - 1) & (self._forced[:n, 1] != NO_TOKEN)
        if not (at_start.any() or at_end.any()):
            return tokens, scores, log_probs
        tokens, log_probs = tokens.astype(np.int64), log_probs.astype(np.float32)
        for when, column in ((at_start, 0), (at_end, 1)):
            tokens[when, :, 0] = self._forced[:n, column][when, None]
            scores[when], log_probs[when] = -np.inf, 0.0
            scores[when, :, 0] = 0.0
        return tokens, scores, log_probs

    def _look_ahead(self, sequence: int) -> None:
        """How many candidates the sequence's next step needs."""
        length, self._most_needed = int(self._length[sequence]), None
        if length < self._prompt[sequence]:
            self._need[sequence] = 1
            return
        touched, rules = self._touched[sequence], self._rules[sequence]
        if rules is not None:
            touched += rules.prepare(np.array(self._history[sequence], np.int64))
        self._need[sequence] = min(self.choices, self._wanted_by(sequence) + touched)

    def _wanted_by(self, sequence: int) -> int:  # noqa: ARG002
        return self._wanted

    def _make_room(self) -> None:
        if self._count == len(self._numbers):
            self._lay_out(np.concatenate([self._numbers, self._numbers]))
            for name in self._columns:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, column]))
            self._every = np.arange(len(self._numbers))

    def _lay_out(self, numbers: Ids) -> None:
        """`numbers` (sequences, columns) under the names of its columns."""
        width, singles, bans = self.width, 2 * self.width + SINGLE, 2 * self.width + SINGLE + FEW
        self._numbers = numbers
        self._fed, self._parents = numbers[:, :width], numbers[:, width : 2 * width]
        self._length, self._prompt, self._limit, self._shortest, self._need, self._uneventful_from = numbers[
            :, 2 * width : singles
        ].T
        self._banned, self._forced = numbers[:, singles:bans], numbers[:, bans:]
