"""Which engine processes there are and what the server takes: what the supervisor publishes to the Triton backend."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dragoman.serving.ipc.frames import Frame, Kind
from dragoman.wire import Limits

__all__ = ["RESTARTED", "RoutingTable"]

RESTARTED = ("engine", "triton")
_STATE = struct.Struct("<?d")
_LIMITS = struct.Struct("<5Q")
_RESTARTS = struct.Struct(f"<{len(RESTARTED)}Q")


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """The state of the server, sent whole to the Triton backend whenever something changes.

    `sockets` holds the engines of each bundle that answer now: a bundle whose only engine is being restarted is in
    `bundles` only. `restarts` counts since the supervisor started, by what was restarted. `limits` are what the backend
    checks before it copies a byte. `status` is the answer of the model `server_status` (`wire.STATUS_FIELDS`).
    """

    bundles: tuple[str, ...]
    sockets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    draining: bool = False
    hold_s: float = 10.0
    restarts: Mapping[str, int] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    status: Mapping[str, Any] = field(default_factory=dict)

    def frame(self) -> Frame:
        """The ROUTES frame, as `native/triton_backend/routes.cpp` reads it."""
        limits = self.limits
        sizes = (limits.max_texts, limits.max_text_bytes, limits.max_request_bytes)
        parts = [
            _STATE.pack(self.draining, self.hold_s),
            _LIMITS.pack(*sizes, limits.max_options_bytes, limits.max_command_bytes),
            _RESTARTS.pack(*(self.restarts.get(what, 0) for what in RESTARTED)),
            json.dumps(self.status, ensure_ascii=False).encode(),
        ]
        for bundle in self.bundles:
            parts += [bundle.encode(), "\0".join(self.sockets.get(bundle, ())).encode()]
        return Frame(Kind.ROUTES, 0, tuple(parts))
