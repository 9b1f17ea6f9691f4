"""The interface of the runtime, which computes the graphs. dragoman.serving.runtime has the implementations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dragoman.search.constraints import Ids
from dragoman.serving.engine.slots import KVSlots

__all__ = ["Decoder", "Encoded", "ForcedPiece", "ForcedRuntime", "Runtime", "TargetReader", "TopTokens"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded sources: `cross` holds the key and value of each decoder layer.

    Arrays, or tensors in a device's memory: only the decoders of the runtime that made them read them.
    """

    cross: Sequence[Any]
    lengths: npt.NDArray[np.int32]
    shortlists: Sequence[int] | None = None
    """The number of the shortlist of each source; None, and 0: all tokens that the model generates."""


@dataclass(frozen=True, slots=True)
class TopTokens:
    """The best next tokens of each row, best first: (rows, candidates) each. Valid until the decoder's next step."""

    tokens: Ids
    log_probs: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float32]


class Decoder(Protocol):
    """A batch of sequences of `width` rows each with their KV caches, numbered from 0 without gaps."""

    @property
    def width(self) -> int: ...

    @property
    def held_slots(self) -> KVSlots:
        """The slots that it has memory for, used or not."""

    def join(self, encoded: Encoded, indices: Sequence[int], target_tokens: Sequence[int]) -> None:
        """Append a sequence for each of these sources, with room for so many target tokens in its rows."""

    def encoded(self, sequence: int) -> Encoded | None:
        """A copy of the sequence's encoded source; None if that would be no cheaper than encoding it again."""

    def leave(self, sequence: int) -> None:
        """Drop a sequence; the last one takes its number."""

    def reserve(self, target_tokens: int) -> None:
        """Make room for so many target tokens in every row."""

    def release(self, target_tokens: int) -> None:
        """Give back memory that no sequence uses; every row keeps room for so many target tokens."""

    def step(
        self,
        tokens: Ids,  # (sequences, width)
        positions: Ids,  # (sequences,): tokens that each row has in its cache
        parents: Ids,  # (sequences, width): the sequence's row at the previous step that a row continues
        candidates: int,
    ) -> TopTokens:
        """Feed one token to each row."""

    def step_scoring(
        self,
        tokens: Ids,
        positions: Ids,
        parents: Ids,
        candidates: int,
        scored_tokens: Ids,  # (sequences, width, any number): token ids, -1 for none
    ) -> TopTokens:
        """`step`, with the `scored_tokens` after the candidates. Only for a runtime that `can_score_tokens`."""

    def step_on(self) -> TopTokens:
        """Feed each row the best token of the last step, with the same number of candidates; requires an unchanged batch of
        width 1.
        """


class ForcedPiece(NamedTuple):
    """The results for some consecutive tokens of a target; if only alignments are requested, only they are valid."""

    log_probs: npt.NDArray[np.float32]  # (tokens,)
    alignment: npt.NDArray[np.float32]  # (tokens, source)
    best_tokens: Ids  # (tokens, candidates)
    best_log_probs: npt.NDArray[np.float32]  # (tokens, candidates)


class TargetReader(Protocol):
    """Reads one target of one source from its beginning."""

    def read(self, tokens: Sequence[int], targets: Sequence[int] | None, candidates: int) -> ForcedPiece:
        """Feed these tokens after those that were fed before.

        `targets`: the token that follows each of them; None: only the alignment is computed.
        """


class ForcedRuntime(Protocol):
    """Forced decoding: several threads may read different targets at the same time."""

    @property
    def tokens_at_once(self) -> int:
        """How many tokens to read per call, so that a call stays short."""

    @property
    def aligns_when_fed(self) -> bool:
        """Whether a token's alignment is that of the row in which it is fed, not of the row before, which predicts it."""

    @property
    def max_candidates(self) -> int | None:
        """The most candidates per position; None for the whole vocabulary."""

    def reader(self, encoded: Encoded, target_tokens: int) -> TargetReader:
        """A reader of targets of the one source in `encoded`; so many tokens will be fed."""


class Runtime(Protocol):
    """A model that is ready to run. Several threads may encode, and step different decoders, at the same time."""

    @property
    def calls_at_once(self) -> int:
        """With how many calls side by side the machine is fastest."""

    @property
    def rows_together(self) -> int:
        """Up to this many rows, one call that all threads share is faster than several side by side."""

    @property
    def max_candidates(self) -> int | None:
        """The most candidates that a step returns; None if it can return the whole vocabulary.

        Searches are exact if they get as many as they need. With fewer, a repetition penalty over a long text, which may
        need a hundred, works on the best that there are.
        """

    @property
    def is_lost(self) -> bool:
        """Whether its device has failed for good: only another process can use it again."""

    @property
    def can_score_tokens(self) -> bool:
        """Whether a step can return the log-probabilities of chosen tokens, which required phrases need."""

    @property
    def pads(self) -> bool:
        """Whether sources that are encoded together, and the caches of a batch, are padded to the longest of them."""

    @property
    def forced(self) -> ForcedRuntime | None:
        """Forced decoding; None if the bundle, or the device, has no graph for it."""

    @property
    def computing(self) -> AbstractContextManager[None]:
        """The context in which a thread makes calls: idle cores help the threads that are in it."""

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded: ...

    def decoder(self, width: int, sequences: int) -> Decoder:
        """A new, empty decoder for at most so many sequences."""
