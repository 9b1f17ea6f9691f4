"""From the outputs of `translate` and `translate_stream` to results."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from dragoman.client.failures import Failure, read_error
from dragoman.client.messages import Reply, foreign_answer
from dragoman.client.results import (
    Alternative,
    Alternatives,
    Link,
    Score,
    SentenceCheck,
    Timings,
    TokenAlternative,
    TokenScore,
    Translation,
)
from dragoman.wire import ALIGNMENT_FIELD, ALTERNATIVES_FIELD, SCORED_FIELDS, ErrorCode

__all__ = ["read_chunk", "read_refusal", "read_scores", "read_streamed", "read_translations"]


def read_translations(reply: Reply, texts: int, round_trip_s: float) -> list[Translation]:
    """One Translation for each of the `texts` that were sent."""
    details = reply.about("DETAILS")
    rows, hypotheses = reply.shape("TRANSLATION")
    found = reply.strings("TRANSLATION")
    scores, counts = reply.array("SCORE").tolist(), reply.array("TOKEN_COUNT").tolist()
    about = details.get("texts", [])
    if not texts == rows == len(scores) == len(counts) == len(about) or len(found) != rows * hypotheses:
        raise foreign_answer(f"{texts} texts were sent and {rows} came back")
    results = []
    for row in range(rows):
        hypotheses_here = zip(found[row * hypotheses : (row + 1) * hypotheses], scores[row], counts[row], strict=True)
        # A search that found fewer hypotheses than its neighbours leaves the rest of its row without tokens.
        links = _links(about[row])
        best, *others = [
            Alternative(*one, links[number] if number < len(links) else ())
            for number, one in enumerate(hypotheses_here)
            if number == 0 or one[2] > 0
        ]
        results.append(_translation(best, tuple(others), details, about[row], round_trip_s))
    return results


def read_scores(reply: Reply, targets: int, round_trip_s: float) -> list[Score]:
    """One Score for each of the `targets` that were sent."""
    details = reply.about("DETAILS")
    totals, about = reply.array("SCORE").ravel().tolist(), details.get("texts", [])
    if not targets == len(totals) == len(about):
        raise foreign_answer(f"{targets} targets were sent and {len(about)} came back")
    return [_score(total, one, details, round_trip_s) for total, one in zip(totals, about, strict=True)]


def _score(total: float, about: dict[str, Any], details: dict[str, Any], round_trip_s: float) -> Score:
    (field,) = SCORED_FIELDS
    try:
        tokens = tuple(TokenScore(str(text), float(log_probability)) for text, log_probability in about[field])
    except KeyError:
        raise foreign_answer("it does not score targets; the server is older than this client") from None
    except (TypeError, ValueError) as error:
        raise foreign_answer(f"its scores can't be read ({error!r})") from None
    if not tokens:
        raise foreign_answer("it scores no token")
    return Score(
        *(total, tokens, int(about.get("source_tokens", 0)), _timings(about, round_trip_s)),
        model=str(details.get("model", "")),
        version=str(details.get("version", "")),
    )


def read_streamed(text: str, details: dict[str, Any], round_trip_s: float) -> Translation:
    """The Translation that the last response of a stream completes; `text` is its pieces joined."""
    try:
        (about,) = details["texts"]
        score = -inf if about["score"] is None else float(about["score"])
        best = Alternative(text, score, int(about["target_tokens"]), *_links(about)[:1])
    except (KeyError, TypeError, ValueError) as error:
        raise foreign_answer(f"the DETAILS of its stream can't be read ({error!r})") from None
    return _translation(best, (), details, about, round_trip_s)


def _translation(
    best: Alternative,
    others: tuple[Alternative, ...],
    details: dict[str, Any],
    about: dict[str, Any],
    round_trip_s: float,
) -> Translation:
    return Translation(
        *(best.text, best.score, best.tokens, others, _timings(about, round_trip_s)),
        source_tokens=int(about.get("source_tokens", 0)),
        finish=str(about.get("finish", "eos")),
        parts=int(about.get("parts", 1)),
        cached=bool(about.get("cached", False)),
        model=str(details.get("model", "")),
        version=str(details.get("version", "")),
        suspicious=int(about.get("suspicious", 0)),
        sentences=_checks(about.get("sentences", ())),
        alignment=best.alignment,
        alternatives_at=_alternatives(about),
    )


def _links(about: dict[str, Any]) -> list[tuple[Link, ...]]:
    """The alignment of each hypothesis, of requests that ask for it."""
    try:
        return [tuple(Link(*map(int, one)) for one in links) for links in about.get(ALIGNMENT_FIELD, ())]
    except (TypeError, ValueError) as error:
        raise foreign_answer(f"its alignment can't be read ({error!r})") from None


def _alternatives(about: dict[str, Any]) -> tuple[Alternatives | None, ...]:
    """What else could stand at places, of requests that ask for it."""
    try:
        return tuple(None if one is None else _place(one) for one in about.get(ALTERNATIVES_FIELD, ()))
    except (KeyError, TypeError, ValueError) as error:
        raise foreign_answer(f"its alternatives can't be read ({error!r})") from None


def _place(one: dict[str, Any]) -> Alternatives:
    source_start, source_end = map(int, one["source"])
    return Alternatives(
        *(
            int(one["start"]),
            int(one["end"]),
            str(one["text"]),
            float(one["log_probability"]),
            tuple(map(int, one["prefix"])),
        ),
        *(source_start, source_end),
        tokens=tuple(
            TokenAlternative(int(each["token"]), str(each["text"]), float(each["log_probability"])) for each in one["tokens"]
        ),
    )


def _checks(sentences: Iterable[dict[str, Any]]) -> tuple[SentenceCheck, ...]:
    """What `on_suspicion` found, sentence by sentence."""
    try:
        return tuple(
            SentenceCheck(
                float(one["length_ratio"]), one.get("coverage"), tuple(map(str, one["suspicions"])), one.get("second")
            )
            for one in sentences
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise foreign_answer(f"what it says of its sentences can't be read ({error!r})") from None


def _timings(about: dict[str, Any], round_trip_s: float) -> Timings:
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
    return chunk, final, reply.about("DETAILS") if final else {}


def read_refusal(error: Any) -> Failure:  # noqa: ANN401 - what JSON gave
    """The failure in `DETAILS.error`, with which a stream that was refused or failed ends."""
    try:
        code, text, hint = ErrorCode(error["code"]), str(error["message"]), error.get("retry_after_ms")
        return read_error(code, text, None if hint is None else float(hint))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise foreign_answer(f"the error of its stream can't be read ({problem!r})") from None
