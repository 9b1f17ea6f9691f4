"""Byte pair encoding as subword-nmt applies it: a word is split into pieces by a list of merges, the earliest first.

subword-nmt searches the whole word again for every merge, which is quadratic; here a heap holds the next merge: n log n.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from dragoman.errors import BundleError

__all__ = ["SubwordCodes"]

END = "</w>"
VERSIONS = ("0.1", "0.2")
MAX_MERGES = 1 << 22


class SubwordCodes:
    """The merges of one codes file, best first. `version` says where the mark of a word's end stands at first."""

    def __init__(self, lines: Iterable[str], file: str) -> None:
        self._ranks: dict[tuple[str, str], int] = {}
        self.version = "0.1"
        for number, line in enumerate(lines):
            if number == 0 and line.startswith("#version:"):
                self.version = line.removeprefix("#version:").strip()
                continue
            self._add(line.strip("\r\n ").split(" "), number, file)
        if self.version not in VERSIONS:
            known = " and ".join(VERSIONS)
            raise BundleError(f"{file} is of version {self.version[:20]!r} of subword-nmt's codes; {known} are known")

    def _add(self, parts: list[str], number: int, file: str) -> None:
        counted = len(parts) == 3 and parts[2].isdigit()  # fastBPE's files say how often each merge was seen
        if counted and not self._ranks:
            self.version = "0.2"  # and they mark a word's last character
        if not (len(parts) == 2 or counted) or not all(parts):
            if parts == [""]:
                return
            raise BundleError(f"{file} is not a file of subword-nmt codes: line {number + 1} must be two pieces")
        if len(self._ranks) >= MAX_MERGES:
            raise BundleError(f"{file} has more than {MAX_MERGES} merges")
        self._ranks.setdefault((parts[0], parts[1]), len(self._ranks))

    def pieces(self, word: str) -> list[str]:
        """The pieces that make up `word`, without marks."""
        if len(word) < 2:
            return [word]
        symbols = [*word, END] if self.version == "0.1" else [*word[:-1], word[-1] + END]
        merged = _Merging(symbols, self._ranks).run()
        if merged[-1] == END:
            return merged[:-1]
        return [*merged[:-1], merged[-1].removesuffix(END)]


class _Merging:
    """One word: its symbols as a linked list, and a heap of the pairs that a merge is known for."""

    def __init__(self, symbols: list[str], ranks: dict[tuple[str, str], int]) -> None:
        self._symbols: list[str | None] = list(symbols)  # None: merged into the symbol before it
        self._ranks = ranks
        self._next = list(range(1, len(symbols) + 1))
        self._before = list(range(-1, len(symbols) - 1))
        self._heap = [pair for at in range(len(symbols) - 1) if (pair := self._pair(at)) is not None]
        heapq.heapify(self._heap)

    def run(self) -> list[str]:
        while self._heap:
            rank = self._heap[0][0]
            merged: list[int] = []  # all pairs of this rank, left to right, before any pair that they make
            while self._heap and self._heap[0][0] == rank:
                pair = heapq.heappop(self._heap)
                if self._pair(pair[1]) == pair:
                    self._merge(pair[1])
                    merged.append(pair[1])
            around = {place for at in merged if self._symbols[at] is not None for place in (self._before[at], at)}
            for at in around:
                if (pair_now := self._pair(at)) is not None:
                    heapq.heappush(self._heap, pair_now)
        return [symbol for symbol in self._symbols if symbol is not None]

    def _pair(self, at: int) -> tuple[int, int] | None:
        """(rank, at) of the pair that begins at a place, if there is one now and a merge for it."""
        if at < 0 or self._symbols[at] is None or self._next[at] >= len(self._symbols):
            return None
        rank = self._ranks.get((self._symbols[at], self._symbols[self._next[at]]))  # type: ignore[arg-type]
        return None if rank is None else (rank, at)

    def _merge(self, at: int) -> None:
        gone = self._next[at]
        self._symbols[at] = f"{self._symbols[at]}{self._symbols[gone]}"
        self._symbols[gone] = None
        self._next[at] = self._next[gone]
        if self._next[at] < len(self._symbols):
            self._before[self._next[at]] = at
