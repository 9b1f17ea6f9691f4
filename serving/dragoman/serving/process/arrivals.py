"""The first part of a request's frame: when it arrived at the server."""

from __future__ import annotations

import math
import struct

from dragoman.errors import ServeError
from dragoman.serving.link.frames import ARRIVAL_BYTES, NO_DETAILS, Frame

__all__ = ["read_arrival"]

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
