"""The translation of one text as it leaves: its hypotheses, and what it took to find them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.wire import WIRE_VERSION

__all__ = ["Effort", "Said", "TextAnswer", "details", "translation_parts"]


@dataclass(frozen=True, slots=True)
class Said:
    """One hypothesis for a whole text."""

    text: str
    score: float
    tokens: int


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """All hypotheses for a text, best first; what the response cache keeps."""

    hypotheses: tuple[Said, ...]
    source_tokens: int
    parts: int
    finish: str

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return 400 + sum(200 + 4 * len(said.text) for said in self.hypotheses)


@dataclass(frozen=True, slots=True)
class Effort:
    """What a text took, from the arrival of its request."""

    queue_s: float
    first_token_s: float
    total_s: float
    steps: int
    cached: bool = False


def translation_parts(answers: Sequence[TextAnswer], told: bytes) -> tuple[bytes, ...]:
    """The parts of an ANSWER to TRANSLATE: details, shape, scores, token counts, then the texts row by row."""
    width = max(len(answer.hypotheses) for answer in answers)
    # A text may have fewer hypotheses than its neighbours; the tensor is a rectangle, so empty ones fill it.
    grid = [(*answer.hypotheses, *(_NOTHING,) * (width - len(answer.hypotheses))) for answer in answers]
    flat = [said for row in grid for said in row]
    return (
        told,
        struct.pack("<II", len(grid), width),
        struct.pack(f"<{len(flat)}f", *(said.score for said in flat)),
        struct.pack(f"<{len(flat)}i", *(said.tokens for said in flat)),
        *(said.text.encode() for said in flat),
    )


_JSON = json.JSONEncoder(ensure_ascii=False)  # made once: making it takes longer than using it
_NOTHING = Said("", float("-inf"), 0)


def details(model: str, version: str, request_id: str, texts: Sequence[tuple[TextAnswer, Effort]]) -> bytes:
    """DETAILS of the wire contract."""
    return _JSON.encode(
        {
            "wire_version": WIRE_VERSION,
            "model": model,
            "version": version,
            "request_id": request_id,
            "texts": [
                {
                    "source_tokens": answer.source_tokens,
                    "target_tokens": answer.hypotheses[0].tokens,
                    "score": _number(answer.hypotheses[0].score),
                    "queue_ms": round(effort.queue_s * 1000, 3),
                    "first_token_ms": round(effort.first_token_s * 1000, 3),
                    "total_ms": round(effort.total_s * 1000, 3),
                    "steps": effort.steps,
                    "parts": answer.parts,
                    "cached": effort.cached,
                    "finish": answer.finish,
                }
                for answer, effort in texts
            ],
        }
    ).encode()


def _number(score: float) -> float | None:
    """JSON has no infinity, which is the score of what only forbidden tokens could say."""
    return round(float(score), 6) if math.isfinite(score) else None
