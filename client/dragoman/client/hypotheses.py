"""Hypotheses of a text from those of its parts, as the server makes them."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.client.results import Alternative

__all__ = ["joined"]


def joined(gaps: Sequence[str], parts: Sequence[Sequence[Alternative]]) -> list[Alternative]:
    """Hypothesis n is made of hypothesis n of each part (of its last one, where it has fewer), between the gaps.

    The score of several parts is the mean over their tokens.
    """
    found = []
    for rank in range(max(map(len, parts), default=1)):
        chosen = [part[min(rank, len(part) - 1)] for part in parts]
        text = gaps[0] + "".join(one.text + gap for one, gap in zip(chosen, gaps[1:], strict=True))
        tokens = sum(one.tokens for one in chosen)
        score = chosen[0].score if len(chosen) == 1 else sum(one.score * one.tokens for one in chosen) / max(tokens, 1)
        found.append(Alternative(text, score, tokens))
    return found
