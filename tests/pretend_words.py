"""Words of a vocabulary without texts: whether a token is a part of a longer word follows from its number."""

from __future__ import annotations

from collections.abc import Sequence


class PretendWords:
    signs = (1, 2)

    def goes_on(self, token: int) -> bool:
        return token % 3 == 0

    def is_open(self, token: int) -> bool:
        return token % 4 != 1

    def edges(self, tokens: Sequence[int]) -> tuple[bool, bool]:
        return tokens[0] % 2 == 0, tokens[-1] % 5 != 0


WORDS = PretendWords()


def has_whole(answer: Sequence[int], term: Sequence[Sequence[int]]) -> bool:
    """Whether one alternative of a term occurs with nothing of another word beside it."""
    for tokens in term:
        before, behind = WORDS.edges(tokens)
        for start in range(len(answer) - len(tokens) + 1):
            end = start + len(tokens)
            if tuple(answer[start:end]) == tuple(tokens):
                in_word = before and start > 0 and WORDS.is_open(answer[start - 1])
                goes_on = behind and end < len(answer) and answer[end] != 0 and WORDS.goes_on(answer[end])
                if not in_word and not goes_on:
                    return True
    return False
