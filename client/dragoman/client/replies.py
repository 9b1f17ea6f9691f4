"""From the outputs of `translate` and `translate_stream` to results."""

from __future__ import annotations

from typing import Any

from dragoman.client.messages import Reply
from dragoman.client.results import Alternative, Timings, Translation
from dragoman.errors import ServerError

__all__ = ["read_chunk", "read_timings", "read_translations"]


def read_translations(reply: Reply, texts: int, round_trip_s: float) -> list[Translation]:
    """One Translation for each of the `texts` that were sent."""
    rows, hypotheses = reply.shape("TRANSLATION")
    found = reply.strings("TRANSLATION")
    scores, counts = reply.array("SCORE").tolist(), reply.array("TOKEN_COUNT").tolist()
    details = reply.json("DETAILS")
    about = details.get("texts", [])
    if not texts == rows == len(scores) == len(counts) == len(about) or len(found) != rows * hypotheses:
        raise ServerError(f"{texts} texts were sent and {rows} came back; use a client and a server of the same release")
    results = []
    for row in range(rows):
        hypotheses_here = zip(found[row * hypotheses : (row + 1) * hypotheses], scores[row], counts[row], strict=True)
        # A search that found fewer hypotheses than its neighbours leaves the rest of its row without tokens.
        best, *others = [Alternative(*one) for number, one in enumerate(hypotheses_here) if number == 0 or one[2] > 0]
        results.append(
            Translation(
                *(best.text, best.score, best.tokens, tuple(others), read_timings(about[row], round_trip_s)),
                source_tokens=int(about[row].get("source_tokens", 0)),
                finish=str(about[row].get("finish", "eos")),
                parts=int(about[row].get("parts", 1)),
                cached=bool(about[row].get("cached", False)),
                model=str(details.get("model", "")),
                version=str(details.get("version", "")),
            )
        )
    return results


def read_timings(about: dict[str, Any], round_trip_s: float) -> Timings:
    """The timings of one text's entry in DETAILS."""
    return Timings(
        queue_ms=float(about.get("queue_ms", 0.0)),
        first_token_ms=float(about.get("first_token_ms", 0.0)),
        total_ms=float(about.get("total_ms", 0.0)),
        round_trip_ms=round_trip_s * 1000,
    )


def read_chunk(reply: Reply) -> tuple[str, bool, dict[str, Any]]:
    """(text just decided, whether it is the last, DETAILS) of one response of a stream."""
    chunk = "".join(reply.strings("CHUNK"))
    final = bool(reply.array("FINAL").any())
    return chunk, final, reply.json("DETAILS") if final else {}
