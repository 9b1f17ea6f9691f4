"""What the engine asks of whatever runs the model. Implementations live in dragoman.serving.runtime."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dragoman.serving.engine.shapes import LaneShape

__all__ = ["Best", "Encoded", "Lane", "Runtime"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Sources after the encoder: `cross` holds key and value of each decoder layer, (batch, heads, source, head_dim).

    Arrays, or tensors in a device's memory: only the lanes of the runtime that made them look inside.
    """

    cross: Sequence[Any]
    lengths: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Best:
    """The best next tokens of each row, best first: (rows, candidates) each. Valid until the lane's next step."""

    tokens: npt.NDArray[np.int64]
    log_probs: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float32]


class Lane(Protocol):
    """Groups of `width` rows with their caches, packed: groups are numbered from 0 without holes."""

    @property
    def width(self) -> int: ...

    def resize(self, shape: LaneShape) -> None:
        """Give room for `shape`, which holds everything that is there."""

    def join(self, encoded: Encoded, indices: Sequence[int]) -> None:
        """Append a group for each of these sources; there is room."""

    def leave(self, group: int) -> None:
        """Drop a group; the last one takes its number."""

    def step(
        self,
        tokens: npt.NDArray[np.int64],  # (groups, width)
        positions: npt.NDArray[np.int64],  # (groups,): tokens that each row has in its cache
        parents: npt.NDArray[np.int64],  # (groups, width): the row of the group at the previous step that a row continues
        candidates: int,
    ) -> Best:
        """Feed one token a row."""

    def step_on(self) -> Best:
        """Feed each row the best token of the last step, for as many candidates; nobody came or went, and width is 1."""


class Runtime(Protocol):
    """A model that is ready to run. Several threads may encode, and step different lanes, at the same time."""

    @property
    def calls_at_once(self) -> int:
        """How many calls the machine does best side by side."""

    @property
    def rows_together(self) -> int:
        """Up to so many rows one call that every thread helps with is better than several side by side."""

    @property
    def max_candidates(self) -> int | None:
        """The most next tokens a step can give; None when it can give the whole vocabulary.

        Searches are exact with as many as they ask for. With fewer, a repetition penalty over a long text, which may
        ask for a hundred, works on the best that there are.
        """

    @property
    def spare_room_is_free(self) -> bool:
        """Whether a step takes no longer in a lane that has more room than it needs."""

    @property
    def pads_sources(self) -> bool:
        """Whether each of the sources that are encoded together takes as long as the longest of them."""

    @property
    def turn(self) -> AbstractContextManager[None]:
        """What a thread is in while it makes calls: the cores of those that are in none help it."""

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded: ...

    def lane(self, width: int) -> Lane:
        """A new, empty lane."""
