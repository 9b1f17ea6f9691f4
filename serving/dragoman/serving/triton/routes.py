"""Which engine process a request goes to, as the supervisor says."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

from dragoman.errors import InvalidRequest
from dragoman.serving.link.channel import Channel, ChannelClosed
from dragoman.serving.link.frames import Frame, Kind

__all__ = ["Engine", "Routes", "RoutingTable"]

RESTARTED = ("engine", "triton")
_STATE, _COUNT = struct.Struct("<?d"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """What the supervisor tells every stub; it tells them again whenever something changes.

    `sockets` holds the engines of each bundle that answer now: a bundle whose only engine is being restarted is in
    `bundles` only. `restarts` counts since the supervisor started, by what was restarted.
    """

    bundles: tuple[str, ...]
    sockets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    draining: bool = False
    hold_s: float = 10.0
    restarts: dict[str, int] = field(default_factory=dict)

    def frame(self) -> Frame:
        """Plain parts, for C++ reads them, too: draining and hold, restarts, then each bundle and its sockets."""
        parts = [_STATE.pack(self.draining, self.hold_s), *(_COUNT.pack(self.restarts.get(what, 0)) for what in RESTARTED)]
        for bundle in self.bundles:
            parts += [bundle.encode(), "\0".join(self.sockets.get(bundle, ())).encode()]
        return Frame(Kind.ROUTES, 0, tuple(parts))

    @classmethod
    def from_frame(cls, frame: Frame) -> RoutingTable:
        state, *rest = frame.parts
        counts, pairs = rest[: len(RESTARTED)], rest[len(RESTARTED) :]
        draining, hold_s = _STATE.unpack(state)
        named = {
            bundle.decode(): tuple(sockets.decode().split("\0")) if sockets else ()
            for bundle, sockets in zip(pairs[::2], pairs[1::2], strict=True)
        }
        restarts = {what: _COUNT.unpack(count)[0] for what, count in zip(RESTARTED, counts, strict=True)}
        return cls(tuple(named), named, draining, hold_s, restarts)


@dataclass(eq=False, slots=True)
class Engine:
    """One engine process as a stub sees it; `key` starts the name of every session it holds."""

    bundle: str
    socket: str
    channel: Channel
    open: int = 0  # requests that it has not answered yet
    writing: bool = False  # is it watched for when it can take more?

    @property
    def key(self) -> str:
        return engine_key(self.socket)


def engine_key(socket: str) -> str:
    """The part of a session's name that says which engine holds it."""
    return socket.rpartition("/")[2].removesuffix(".sock")


class Routes:
    """The engines that answer, and those that only finish what they have."""

    def __init__(self) -> None:
        self.table = RoutingTable(bundles=())
        self._current: dict[str, list[Engine]] = {}
        self._all: list[Engine] = []

    def update(self, table: RoutingTable) -> list[Engine]:
        """Take a new table; returns the engines this stub was not connected to yet."""
        known = {engine.socket for engine in self._all}
        fresh = []
        for bundle, sockets in table.sockets.items():
            for socket in sockets:
                if socket not in known:
                    try:
                        fresh.append(Engine(bundle, socket, Channel.connect(socket)))
                    except ChannelClosed:
                        continue  # it died just now; the supervisor's next table has its successor
        self._all += fresh
        self._current = {
            bundle: [engine for engine in self._all if engine.socket in sockets] for bundle, sockets in table.sockets.items()
        }
        self.table = table
        return fresh

    def forget(self, engine: Engine) -> None:
        """The engine is gone."""
        engine.channel.close()
        self._all.remove(engine)
        if engine in self._current.get(engine.bundle, ()):
            self._current[engine.bundle].remove(engine)

    def all(self) -> list[Engine]:
        """Every engine this stub is connected to."""
        return list(self._all)

    def engine(self, bundle: str) -> Engine | None:
        """Who answers for `bundle` now: the one with the least to do; None while it is being restarted.

        Of idle ones the first: what was used last is in the processor's caches.
        """
        return min(self._current.get(bundle, ()), key=lambda engine: engine.open, default=None)

    def engine_of_session(self, session: bytes) -> Engine | None:
        key = session.partition(b".")[0]
        return next((engine for engine in self._all if engine.key.encode() == key), None)

    def bundle_for(self, options: bytes) -> str:
        """The bundle the options ask for; with one bundle its engine judges the options itself."""
        bundles = self.table.bundles
        if len(bundles) == 1:
            return bundles[0]
        try:
            parsed = json.loads(options or b"{}")
        except ValueError:
            return bundles[0]  # any engine says what is wrong with them
        asked = parsed.get("model") if isinstance(parsed, dict) else None
        if asked in bundles:
            return str(asked)
        served = ", ".join(bundles)
        if asked is None:
            raise InvalidRequest(f"this server has several models; set the option `model` to one of {served}")
        raise InvalidRequest(f"there is no model {str(asked)[:60]!r} here; this server has {served}")
