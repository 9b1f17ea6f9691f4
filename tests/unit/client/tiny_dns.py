"""A name server that knows one name: what round robin over DNS needs, without touching the machine's own names."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_A, _INTERNET, _TTL_S = 1, 1, 60
_RESPONSE = 0x8580  # an answer, authoritative, no error


@contextmanager
def naming(name: str, addresses: Sequence[str]) -> Iterator[str]:
    """The address of a name server that gives `addresses` for `name` while it runs."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            question, answer_to = self.request
            answer_to.sendto(_answer(question, name, addresses), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _answer(query: bytes, name: str, addresses: Sequence[str]) -> bytes:
    """RFC 1035: header, the question again, and an A record for each address; nothing for other questions."""
    (number,) = struct.unpack_from(">H", query)
    asked, end = _name_at(query, 12)
    kind, _ = struct.unpack_from(">HH", query, end)
    found = addresses if kind == _A and asked == name else ()
    header = struct.pack(">HHHHHH", number, _RESPONSE, 1, len(found), 0, 0)
    records = [struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, _TTL_S, 4) + socket.inet_aton(one) for one in found]
    return header + query[12 : end + 4] + b"".join(records)


def _name_at(message: bytes, offset: int) -> tuple[str, int]:
    labels = []
    while size := message[offset]:
        labels.append(message[offset + 1 : offset + 1 + size].decode())
        offset += 1 + size
    return ".".join(labels).lower(), offset + 1
