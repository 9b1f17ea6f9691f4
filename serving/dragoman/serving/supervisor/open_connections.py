"""The TCP connections to a port of this machine, as the kernel lists them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["TcpConnection", "connections_to"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """An established connection; `unsent_bytes` have been written to it and not acknowledged by its other end."""

    unsent_bytes: int


def connections_to(port: int, tables: tuple[Path, ...] = _TABLES) -> list[TcpConnection]:
    """All established connections to `port`; a line is number, local, remote, state, tx_queue:rx_queue and more."""
    found = []
    for table in tables:
        if not table.exists():  # a kernel without IPv6
            continue
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, queues, *_ = line.split()
            if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
                found.append(TcpConnection(int(queues.partition(":")[0], 16)))
    return found
