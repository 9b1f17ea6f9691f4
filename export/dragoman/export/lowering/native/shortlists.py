"""The layout of shortlists in the table of the output projection: the whole vocabulary, followed by the rows of each list.

Tokens that all lists share, such as single characters, are stored once more; tokens of some lists only, once for each of
them. So a list is two stretches of tiles, and the weights that a step reads for it are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.export.lowering.native.tiles import TILE

__all__ = ["ListedRows"]


@dataclass(frozen=True, slots=True)
class ListedRows:
    """`tokens` of the table's rows, and of each list the begin and end of two stretches of them, (lists, 4)."""

    tokens: NDArray[np.int32]
    ranges: NDArray[np.int64]

    @classmethod
    def of_one(cls, shortlist: Sequence[int]) -> ListedRows:
        """A table that holds one list and nothing else."""
        return cls(np.array(shortlist, np.int32), np.array([[0, len(shortlist), 0, 0]]))

    @classmethod
    def of_languages(cls, vocabulary: int, lists: Sequence[Sequence[int]]) -> ListedRows:
        """List 0 is the whole vocabulary, the others follow; tokens of a list ascend."""
        shared = set.intersection(*map(set, lists)) if len(lists) > 1 else set[int]()
        stretches = [range(vocabulary), sorted(shared), *(sorted(set(one) - shared) for one in lists)]
        starts, tokens = [], list[NDArray[np.int32]]()
        for stretch in stretches:
            starts.append(sum(map(len, tokens)))
            filled = np.zeros(-(-len(stretch) // TILE) * TILE, np.int32)  # token 0 fills the last tile up; no range has it
            filled[: len(stretch)] = stretch
            tokens.append(filled)
        in_both = [starts[1], starts[1] + len(shared)]
        own = [[start, start + len(stretch)] for start, stretch in zip(starts[2:], stretches[2:], strict=True)]
        return cls(np.concatenate(tokens), np.array([[0, vocabulary, 0, 0], *([*in_both, *one] for one in own)]))
