"""The response cache: earlier answers, bounded, least recently used first out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ResponseCache"]

_V = TypeVar("_V")


class ResponseCache(Generic[_V]):
    """Bounded by bytes. It exists only within an engine process, so the bundle need not be part of a key."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[_V, int]] = OrderedDict()
        self.used_bytes = 0

    @property
    def enabled(self) -> bool:
        return self._max_bytes > 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> _V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, value: _V, size_bytes: int) -> None:
        """Remember `value`; what no longer fits is dropped, and a value that never fits is not kept."""
        if size_bytes > self._max_bytes:
            return
        if key in self._entries:
            self.used_bytes -= self._entries.pop(key)[1]
        self._entries[key] = (value, size_bytes)
        self.used_bytes += size_bytes
        while self.used_bytes > self._max_bytes:
            _, (_, dropped_bytes) = self._entries.popitem(last=False)
            self.used_bytes -= dropped_bytes
