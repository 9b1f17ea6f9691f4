"""The parts of a request's frame: when it arrived at the server, and which of its strings are targets."""

from __future__ import annotations

import math
import struct

from dragoman.errors import ServeError
from dragoman.serving.link.frames import ARRIVAL_BYTES, NO_DETAILS, Frame

__all__ = ["read_arrival", "targets_behind"]

_ARRIVAL = struct.Struct("<d")
_PARTS_BEFORE_TEXTS = 2


def read_arrival(frame: Frame) -> tuple[float, bool]:
    """Seconds of the monotonic clock, and whether the caller wants DETAILS; ServeError when the frame is malformed."""
    if len(frame.parts) < _PARTS_BEFORE_TEXTS or len(frame.parts[0]) not in (ARRIVAL_BYTES, ARRIVAL_BYTES + len(NO_DETAILS)):
        raise ServeError(f"a {frame.kind.name} frame is malformed")
    (arrived_s,) = _ARRIVAL.unpack_from(frame.parts[0])
    if not math.isfinite(arrived_s):
        raise ServeError(f"a {frame.kind.name} frame arrived at {arrived_s}")
    return arrived_s, not frame.parts[0].endswith(NO_DETAILS, ARRIVAL_BYTES)


def targets_behind(strings: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The texts of a SCORE frame and the targets behind them; ServeError when there are not as many."""
    texts, odd = divmod(len(strings), 2)
    if odd:
        raise ServeError("a SCORE frame has another number of targets than of texts")
    return strings[:texts], strings[texts:]
