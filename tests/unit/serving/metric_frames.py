"""Reads METRICS frames, as the Triton backend does."""

from __future__ import annotations

import struct

from dragoman.serving.ipc.frames import Frame
from dragoman.serving.metrics import Change

__all__ = ["read_changes"]


def read_changes(frame: Frame) -> list[Change]:
    names, labels, amounts = (frame.parts[start::3] for start in range(3))
    return [
        (name.decode(), label.decode(), struct.unpack("<d", amount)[0])
        for name, label, amount in zip(names, labels, amounts, strict=True)
    ]
