"""Beam search with the semantics, and the 32-bit arithmetic, of Hugging Face `generate`."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.search.batch import SearchBatch
from dragoman.search.constraints import Ids, Scores
from dragoman.search.hypothesis import Hypothesis, common_beginning
from dragoman.search.initial_state import TokenIds
from dragoman.search.phrase_table import Words
from dragoman.search.phrase_trackers import PhraseTrackers
from dragoman.search.phrases import Candidate, PhraseTracker

__all__ = ["BeamBatch"]

_NEVER = np.float32(-1.0e9)
"""Marks what must not win; finite, so that it can be added and compared."""

_LONGER = 3
"""Tokens that a row with all phrases may have more than the best that has ended. Of the first 800 sentences of Tatoeba with
three terms this gives the best BLEU; waiting for all rows costs a quarter more steps, and 3.6 points."""

_TABLE = 64
"""Lengths that the table of length penalties has to begin with."""


@dataclass(slots=True)
class _Ended:
    """A hypothesis that has ended: its score with length penalty and its tokens after the start token."""

    score: np.float32
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class _Best:
    """The best continuations of some sequences, best first: (sequences, _wanted) each."""

    sums: Scores
    rows: Ids
    ids: Ids
    tokens: list[list[int]]  # the same as `ids`, as lists


class BeamBatch(SearchBatch):
    """Keeps the `width` best rows of each sequence. Processors work on log-probabilities."""

    _columns = ("_scores", "_floor", "_open", "_stops", "_divisor")

    def __init__(
        self, width: int, tokens: TokenIds, vocabulary: int, choices: int | None = None, words: Words | None = None
    ) -> None:
        super().__init__(width, tokens, vocabulary, choices)
        self._words = words
        # Each row may end, with each of the end tokens, and then as many others must be there to go on.
        self._wanted = (1 + len(self._ends)) * width
        sequences = len(self._length)
        self._scores = np.zeros((sequences, width), np.float32)  # sums of log-probabilities, best first
        self._floor = np.zeros(sequences, np.float32)  # the score that a running row must be able to exceed
        self._open = np.ones(sequences, np.bool_)  # a running row may still beat it
        self._stops = np.zeros(sequences, np.bool_)  # enough have ended where the search stops at the first
        self._divisor = np.ones((sequences, _TABLE), np.float32)  # length penalty by the number of tokens generated
        self._ended: list[list[_Ended]] = []  # best first, at most `width`
        self._full = 0  # sequences that have all the hypotheses they need
        self._phrases = PhraseTrackers(width)
        self._lists += (self._ended, self._phrases.listed)
        self._shrinks = 1.0  # the most that a length penalty makes of a score: a negative one multiplies

    def hypotheses(self, sequence: int) -> tuple[Hypothesis, ...]:
        found = []
        if not self._ended[sequence]:  # every continuation was forbidden: what there is so far
            self._ended[sequence].append(_Ended(self._scores[sequence, 0], self._history[sequence][0][1:]))
        for ended in self._ended[sequence][: self._options[sequence].num_hypotheses]:
            tokens = tuple(ended.tokens)
            found.append(Hypothesis(tokens, float(ended.score), "eos" if tokens[-1] in self._ends else "length"))
        return tuple(found)

    def decided(self, sequence: int) -> tuple[int, ...]:
        """What every running row and every hypothesis that has ended begin with."""
        if self._length[sequence] <= self._prompt[sequence]:
            return self._options[sequence].prefix
        alive = (self._scores[sequence] > _NEVER / 2).tolist()
        alive[0] = True
        rows = [tokens[1:] for tokens, lives in zip(self._history[sequence], alive, strict=True) if lives]
        return tuple(common_beginning([*rows, *(ended.tokens for ended in self._ended[sequence])]))

    def _start_sequence(self, sequence: int) -> None:
        # All rows are the same at first: only one may be continued, or all beams would be copies of it.
        self._scores[sequence], self._scores[sequence, 0] = _NEVER, 0.0
        self._floor[sequence], self._open[sequence], self._stops[sequence] = _NEVER, True, False
        options = self._options[sequence]
        if (longest := options.max_length + 2) > self._divisor.shape[1]:
            wider = np.ones((len(self._divisor), max(longest, 2 * self._divisor.shape[1])), np.float32)
            wider[:, : self._divisor.shape[1]] = self._divisor
            self._divisor = wider
        if options.early_stopping == "never" and options.length_penalty > 0.0:  # the longest hypothesis may still score best
            self._divisor[sequence] = options.max_length**options.length_penalty
        else:
            self._divisor[sequence, :longest] = _penalties(options.length_penalty, longest)
        self._ended.append([])
        self._phrases.append(PhraseTracker(options, self._ends, self.width, self._words) if options.must_occur else None)
        self._shrinks = max(self._shrinks, options.max_length ** max(-options.length_penalty, 0.0))

    def leave(self, sequence: int) -> None:
        self._full -= int(self._floor[sequence] != _NEVER)
        self._phrases.count -= self._phrases.listed[sequence] is not None
        super().leave(sequence)

    def scored_tokens(self) -> Ids | None:
        return self._phrases.scored_tokens()

    def _is_individual(self, sequence: int) -> bool:
        return bool(self._options[sequence].must_occur) or super()._is_individual(sequence)

    def _feed(self, sequence: int) -> None:
        super()._feed(sequence)
        if (tracker := self._phrases.listed[sequence]) is not None:
            tracker.feed(self._history[sequence][0][-1])

    def _catch_up(self) -> None:
        """Nothing is ever deferred."""

    def _scored(self, log_probs: Scores, logits: Scores) -> Scores:  # noqa: ARG002
        return log_probs

    def _choose(self, live: slice | Ids, tokens: Ids, scores: Scores, log_probs: Scores) -> list[int]:  # noqa: ARG002
        over = self._length[live] + 1 == self._limit[live]  # (live,)
        if self._phrases.count:
            any_ended = self._take_each_kind(self._every[live], tokens, scores, over)
        else:
            any_ended = self._take(live, self._best(live, tokens, scores), over.tolist())
        if not any_ended and not self._full and self._scores[live, 0].min() > _NEVER / self._shrinks:
            return []  # none has all the hypotheses that it needs: none can be done
        return self._done(live, ~over)

    def _take_each_kind(self, sequences: Ids, tokens: Ids, scores: Scores, over: npt.NDArray[np.bool_]) -> bool:
        """`_take` for sequences with phrases and for those without."""
        trackers = self._phrases.listed
        has_phrases = np.array([trackers[sequence] is not None for sequence in sequences.tolist()])
        if has_phrases.all():
            return self._take_constrained(sequences, tokens, scores, over.tolist())
        plain = sequences[~has_phrases]
        any_ended = self._take(
            plain, self._best(plain, tokens[~has_phrases], scores[~has_phrases]), over[~has_phrases].tolist()
        )
        if has_phrases.any():
            each = has_phrases.nonzero()[0]
            any_ended |= self._take_constrained(sequences[each], tokens[each], scores[each], over[each].tolist())
        return any_ended

    def _go_on(self, tokens: Ids, log_probs: Scores) -> list[int] | None:
        live = slice(0, self._count)
        best = self._best(live, tokens, log_probs)
        if not self._banned_somewhere.isdisjoint(itertools.chain.from_iterable(best.tokens)):
            return None
        any_ended = self._take(live, best, [False] * self._count)
        return self._done(live) if any_ended or self._full else []

    def _best(self, live: slice | Ids, tokens: Ids, scores: Scores) -> _Best:
        """The best continuations of each sequence: twice as many as it has rows where one token ends them."""
        count, width, candidates = tokens.shape
        sums = (scores + self._scores[live][:, :, None]).reshape(count, -1)  # (live, width * candidates)
        best = (-sums).argsort(axis=1, kind="stable")[:, : self._wanted]
        rows = best // candidates
        if count > 1:
            best = best + self._every[:count, None] * (width * candidates)
        best_tokens = tokens.take(best)
        return _Best(sums.take(best), rows, best_tokens, best_tokens.tolist())

    def _take(self, live: slice | Ids, best: _Best, over: list[bool]) -> bool:
        """Replace the rows by the best continuations except those that end (in a sequence that is `over`, all); whether any
        ended.
        """
        width, any_ended = self.width, False
        # As if none ended; those that do are handled one by one.
        self._scores[live], self._parents[live] = best.sums[:, :width], best.rows[:, :width]
        self._fed[live] = best.ids[:, :width]
        sequences = self._every[live].tolist()
        for at, (sequence, rows, tokens) in enumerate(zip(sequences, best.rows.tolist(), best.tokens, strict=True)):
            if over[at] or not self._ends.isdisjoint(tokens):
                any_ended = True
                self._go_on_without_ended(sequence, best.sums[at], rows, tokens, over[at])
            else:
                self._extend(sequence, rows[:width], tokens[:width])
        self._length[live] += 1
        return any_ended

    def _take_constrained(self, live: Ids, tokens: Ids, scores: Scores, over: list[bool]) -> bool:
        """`_take` for sequences with phrases."""
        sequences, any_ended = live.tolist(), False
        sums, need = scores + self._scores[live][:, :, None], self._need[live].tolist()
        unordered = [self._rules[sequence] is not None for sequence in sequences]
        found = self._phrases.candidates(sequences, tokens, sums, need=need, unordered=unordered, dead=float(_NEVER / 2))
        next_rows: list[list[Candidate]] = []
        for sequence, (tracker, candidates), is_over in zip(sequences, found, over, strict=True):
            if ending := tracker.ending(candidates, over=is_over, has_some=bool(self._ended[sequence])):
                any_ended = True
                self._end(sequence, [(np.float32(score), row, token) for score, row, token, _ in ending])
            # What is left where everything is forbidden goes on with the same tokens.
            chosen = tracker.kept(candidates) or [(float(_NEVER), 0, self._history[sequence][0][-1], 0)]
            chosen += [(float(_NEVER), *chosen[-1][1:])] * (self.width - len(chosen))
            tracker.go_on(chosen)
            self._extend(sequence, [one[1] for one in chosen], [one[2] for one in chosen])
            if self._floor[sequence] != _NEVER and not self._may_improve(sequence, tracker, chosen):
                self._stops[sequence] = True
            next_rows.append(chosen)
        table = np.array(next_rows)  # (sequences, width, 4): 64 bits hold a score and a token exactly
        self._scores[live], self._parents[live], self._fed[live] = table[..., 0], table[..., 1], table[..., 2]
        self._length[live] += 1
        return any_ended

    def _may_improve(self, sequence: int, tracker: PhraseTracker, rows: list[Candidate]) -> bool:
        """Whether a row of a sequence with phrases may still beat the hypotheses that have ended; rows that lack phrases
        have higher scores, and are not waited for beyond the length of the best of these.
        """
        options = self._options[sequence]
        if options.early_stopping == "never":
            return True
        length = len(self._history[sequence][0]) - 1
        room = len(self._ended[sequence][0].tokens) + _LONGER - length
        best = next((score for score, _, _, bank in rows if tracker.most - bank <= max(room, 0)), None)
        divisor = self._divisor[sequence, length - len(options.prefix)]
        return best is not None and bool(best / divisor > self._floor[sequence])

    def _extend(self, sequence: int, parents: list[int], tokens: list[int]) -> None:
        history = self._history[sequence]
        self._history[sequence] = [[*history[parent], token] for parent, token in zip(parents, tokens, strict=True)]

    def _go_on_without_ended(self, sequence: int, sums: Scores, rows: list[int], tokens: list[int], over: bool) -> None:
        """Of the best continuations of a sequence, (_wanted) each, some have ended: the others go on."""
        ends = [over or token in self._ends for token in tokens]
        # Only the first `width` may end; the others are there to go on.
        if ending := [(sums[at], rows[at], tokens[at]) for at in range(self.width) if ends[at]]:
            self._end(sequence, ending)
        going = sorted(range(len(ends)), key=ends.__getitem__)[: self.width]  # best first, as they were
        kept = sums[going]
        if ends[going[-1]]:  # nothing else is left
            kept = kept + np.array([ends[at] for at in going]) * _NEVER
        self._scores[sequence] = kept
        parents, fed = [rows[at] for at in going], [tokens[at] for at in going]
        self._parents[sequence], self._fed[sequence] = parents, fed
        self._extend(sequence, parents, fed)

    def _end(self, sequence: int, ending: list[tuple[np.float32, int, int]]) -> None:
        """Sums, rows and last tokens of hypotheses that end now; the best that have ended are kept."""
        options, history, ended = self._options[sequence], self._history[sequence], self._ended[sequence]
        # With phrases only one or two rows have all of them: as many as the beam is wide would take long to end.
        wanted = options.num_hypotheses if options.must_occur else self.width
        if options.early_stopping == "first" and len(ended) == wanted:
            return
        generated = len(history[0]) - len(options.prefix)  # the new token is one, the start token none
        penalty = np.float32(generated**options.length_penalty)
        ended += [_Ended(total / penalty, [*history[row][1:], token]) for total, row, token in ending]
        ended.sort(key=lambda one: -one.score)
        del ended[wanted:]
        if len(ended) == wanted:
            self._full += self._floor[sequence] == _NEVER
            self._floor[sequence] = ended[-1].score
            self._stops[sequence] = options.early_stopping == "first"

    def _done(self, live: slice | Ids, may_go_on: npt.NDArray[np.bool_] | bool = True) -> list[int]:
        """The sequences of which no running row can improve the answer any more, highest first."""
        generated = self._length[live] - self._prompt[live]
        possible = self._scores[live, 0] / self._divisor[self._every[live], generated]
        self._open[live] &= possible > self._floor[live]
        going = self._open[live] & ~self._stops[live] & may_go_on
        done: list[int] = self._every[live][~going][::-1].tolist()
        return done


@functools.lru_cache(maxsize=64)
def _penalties(exponent: float, count: int) -> Scores:
    """0 … count − 1 to the power of `exponent`, as Python computes it and not as numpy may."""
    return np.array([1.0, *(length**exponent for length in range(1, count))], np.float32)
