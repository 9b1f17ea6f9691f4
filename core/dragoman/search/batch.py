"""Many searches of one width that advance together.

A group is one source, and so one request, with its own options and its own position. What is computed for all groups at
once lies in arrays with a leading axis of groups; what was said, which only grows, lies in lists: between two steps of a
model nothing of numpy is in the processor's caches, and a call of it costs ten times what a list does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dragoman.search.constraints import HistoryRules, Ids, Scores
from dragoman.search.hypothesis import Hypothesis
from dragoman.search.opening import FEW, NO_TOKEN, SINGLE, Openings
from dragoman.search.options import DecodingOptions

__all__ = ["SearchBatch", "TokenIds"]

_GROUPS = 8


class TokenIds(Protocol):
    """The special tokens that a search must know (dragoman.bundle.manifest.SpecialTokens is one)."""

    @property
    def eos(self) -> int: ...
    @property
    def decoder_start(self) -> int: ...


class SearchBatch(ABC):
    """Searches side by side: `join`, then step with `tokens`, `positions` and `parents`, then `advance`, till done.

    A group's rows are fed its start token and forced prefix one by one; what the model says meanwhile is ignored.
    """

    _columns: tuple[str, ...] = ()  # arrays with a row for each group, beside the whole numbers

    # Columns of `_numbers`, which lie side by side: a group comes and goes with one copy.
    _fed: Ids  # (groups, width): the last tokens of _said, which are fed next
    _parents: Ids  # (groups, width)
    _length: Ids  # tokens of each row in _said
    _prompt: Ids  # tokens that are given: start and prefix
    _limit: Ids  # the length at which a row ends
    _shortest: Ids  # below this length the end token is forbidden
    _need: Ids  # candidates for the next step
    _calm_from: Ids  # the length from which nothing special happens until the limit
    _banned: Ids  # (groups, FEW)
    _forced: Ids  # (groups, 2): first and last token

    def __init__(self, width: int, tokens: TokenIds, vocabulary: int, choices: int | None = None) -> None:
        """Of the `vocabulary` a model with a shortlist gives `choices` tokens at most; others give all."""
        self.width = width
        self._eos, self._start = tokens.eos, tokens.decoder_start
        self.choices = vocabulary if choices is None else choices
        self._count = 0
        self._every = np.arange(_GROUPS)
        self._rows = np.arange(width)
        self._said: list[list[list[int]]] = []  # of each row of each group: start, prefix and what was generated
        self._most_needed: int | None = None  # the largest of _need, once somebody has asked
        self._lay_out(np.zeros((_GROUPS, 2 * width + SINGLE + FEW + 2), np.int64))
        self._openings = Openings(width, tokens.decoder_start, tokens.eos, vocabulary)
        self._options: list[DecodingOptions] = []
        self._touched: list[int] = []  # tokens that the options without history may forbid
        self._rules: list[HistoryRules | None] = []
        self._calm = 0  # so many steps at least nothing special will happen to any group
        self._particular = 0  # groups that a step must look at one by one
        self._ban_columns = 0  # columns of _banned that are in use
        self._banned_somewhere: set[int] = set()  # tokens of _banned; of groups that have left, too

    # What the next step needs.

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Ids:
        """(groups, width): what to feed next."""
        self._catch_up()
        return self._fed[: self._count]

    @property
    def positions(self) -> Ids:
        """(groups,): how many tokens each row of a group was fed before."""
        self._catch_up()
        return self._length[: self._count] - 1

    @property
    def parents(self) -> Ids:
        """(groups, width): the row of the same group at the previous step that each row continues."""
        return self._parents[: self._count]

    @property
    def candidates(self) -> int:
        """How many best tokens the next step must give at least; more do no harm."""
        if self._most_needed is None:
            self._most_needed = int(self._need[: self._count].max(initial=1))
        return self._most_needed

    def options(self, group: int) -> DecodingOptions:
        return self._options[group]

    # Coming and going.

    def join(self, options: DecodingOptions) -> int:
        """Start a search; its group number, which is the highest."""
        opening = self._openings.of(options)
        self._catch_up()
        self._make_room()
        group = self._count
        self._said.append([[self._start] for _ in range(self.width)])
        self._numbers[group] = opening.numbers
        self._options.append(options)
        self._touched.append(opening.touched)
        self._rules.append(opening.rules())
        self._calm = min(self._calm, opening.calm_steps)
        self._ban_columns = max(self._ban_columns, len(opening.few))
        self._banned_somewhere.update(opening.few)
        self._particular += self._is_particular(group)
        self._count += 1
        self._start_group(group)
        self._look_ahead(group)
        return group

    def leave(self, group: int) -> None:
        """Forget a search; the last group takes its number."""
        self._catch_up()
        last = self._count - 1
        self._particular -= self._is_particular(group)
        self._most_needed = None
        self._numbers[group] = self._numbers[last]
        for name in self._columns:
            column = getattr(self, name)
            column[group] = column[last]
        for listed in self._lists():
            listed[group] = listed[last]
            listed.pop()
        self._count = last

    # The step.

    def advance(self, best_tokens: Ids | npt.NDArray[np.int32], best_log_probs: Scores, best_logits: Scores) -> list[int]:
        """Take the best next tokens of each row, best first, any shape that reads as (groups, width, candidates).

        Returns the groups that are done, highest first, so that they can `leave` in this order.
        """
        self._catch_up()
        n, shape = self._count, (self._count, self.width, -1)
        tokens = best_tokens.reshape(shape).astype(np.int64, copy=False)
        log_probs = best_log_probs.reshape(shape)
        calm = self._is_calm()
        if calm and not self._particular and (ended := self._go_on(tokens, log_probs)) is not None:
            return ended
        tokens, scores, log_probs = self._constrained(tokens, log_probs, best_logits.reshape(shape), calm)
        live: slice | Ids = slice(0, n)
        changed = [group for group, rules in enumerate(self._rules) if rules is not None] if self._particular else []
        if not calm and (feeding := self._length[:n] < self._prompt[:n]).any():
            fed, live = np.flatnonzero(feeding).tolist(), np.flatnonzero(~feeding)
            for group in fed:
                self._feed(group)
            changed += fed
            tokens, scores, log_probs = tokens[live], scores[live], log_probs[live]
        done = self._choose(live, tokens, scores, log_probs) if len(tokens) else []
        for group in changed:
            self._look_ahead(group)
        return done

    def _feed(self, group: int) -> None:
        """The next token of the group's prefix, whatever the model says."""
        token = self._options[group].prefix[self._length[group] - 1]
        for said in self._said[group]:
            said.append(token)
        self._fed[group] = token
        self._length[group] += 1

    def _is_calm(self) -> bool:
        """Whether no group is at a special place: most steps are calm, and skip all that is not for them."""
        calm_steps = self._calm_steps()
        self._calm -= calm_steps > 0
        return calm_steps > 0

    def _calm_steps(self) -> int:
        """So many steps from now on, at least, are calm."""
        if self._calm <= 0:
            n, length = self._count, self._length[: self._count]
            special = not n or bool((length < self._calm_from[:n]).any())
            self._calm = 0 if special else int((self._limit[:n] - 1 - length).min())
        return self._calm

    @abstractmethod
    def hypotheses(self, group: int) -> tuple[Hypothesis, ...]:
        """The answer of a group that is done, best first."""

    @abstractmethod
    def decided(self, group: int) -> tuple[int, ...]:
        """Tokens of the answer that can't change any more: prefix and generated ones."""

    # What greedy and beam search do differently.

    _wanted: int  # candidates of a row that no rule touches

    @abstractmethod
    def _start_group(self, group: int) -> None: ...

    @abstractmethod
    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:
        """Of the two, the one that the processors work on."""

    @abstractmethod
    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:
        """Extend the rows of the groups `live`; (live, width, candidates) each, `scores` processed."""

    @abstractmethod
    def _go_on(self, tokens: Ids, log_probs: Scores) -> list[int] | None:
        """`_choose` for all groups in a step in which no rule has a say and nobody comes to its limit: most steps.

        None, and nothing has changed, when a banned token would be chosen.
        """

    @abstractmethod
    def _catch_up(self) -> None:
        """Write in the arrays what was put off."""

    def _is_particular(self, group: int) -> bool:
        return self._rules[group] is not None

    def _lists(self) -> Sequence[list[object]]:
        return [self._options, self._said, self._touched, self._rules]  # type: ignore[list-item]

    # Processors.

    def _constrained(self, tokens: Ids, log_probs: Scores, logits: Scores, calm: bool) -> tuple[Ids, Scores, Scores]:
        """Tokens, processed scores and log-probabilities."""
        n = self._count
        scores = self._scored(log_probs, logits).astype(np.float32)  # a copy: the arrays belong to the runtime
        for group, rules in enumerate(self._rules) if self._particular else ():
            if rules is not None and self._length[group] >= self._prompt[group]:
                rules.apply(tokens[group], scores[group])
        for column in range(self._ban_columns):
            scores[tokens == self._banned[:n, column, None, None]] = -np.inf
        if calm:
            return tokens, scores, log_probs
        early = self._length[:n] < self._shortest[:n]
        if early.any():
            scores[(tokens == self._eos) & early[:, None, None]] = -np.inf
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

    def _look_ahead(self, group: int) -> None:
        """How many candidates the group's next step needs."""
        length, self._most_needed = int(self._length[group]), None
        if length < self._prompt[group]:
            self._need[group] = 1
            return
        touched, rules = self._touched[group], self._rules[group]
        if rules is not None:
            touched += rules.prepare(np.array(self._said[group], np.int64))
        self._need[group] = min(self.choices, self._wanted_by(group) + touched)

    def _wanted_by(self, group: int) -> int:  # noqa: ARG002
        return self._wanted

    def _make_room(self) -> None:
        if self._count == len(self._numbers):
            self._lay_out(np.concatenate([self._numbers, self._numbers]))
            for name in self._columns:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, column]))
            self._every = np.arange(len(self._numbers))

    def _lay_out(self, numbers: Ids) -> None:
        """`numbers` (groups, columns) under the names of its columns."""
        width, singles, bans = self.width, 2 * self.width + SINGLE, 2 * self.width + SINGLE + FEW
        self._numbers = numbers
        self._fed, self._parents = numbers[:, :width], numbers[:, width : 2 * width]
        self._length, self._prompt, self._limit, self._shortest, self._need, self._calm_from = numbers[
            :, 2 * width : singles
        ].T
        self._banned, self._forced = numbers[:, singles:bans], numbers[:, bans:]
