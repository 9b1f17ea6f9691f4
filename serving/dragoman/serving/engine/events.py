"""What comes out of the engine."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.serving.engine.sequence import Sequence
from dragoman.serving.engine.session_call import SessionCall

__all__ = ["Event", "Finished", "Progress", "SessionReply"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Target tokens of a streaming sequence that can't change any more, after those of earlier events."""

    sequence: Sequence
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The sequence has ended: it has its hypotheses, best first, or its error. Each sequence gets exactly one."""

    sequence: Sequence


@dataclass(frozen=True, slots=True)
class SessionReply:
    """A call of a client-driven session has ended: it has its result or its error."""

    call: SessionCall


Event = Progress | Finished | SessionReply
