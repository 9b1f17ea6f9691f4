"""Where the servers are: what people type, and what gRPC dials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import UsageError

__all__ = ["DEFAULT_PORT", "TLS", "Addresses", "parse_addresses"]

DEFAULT_PORT = 8001
_SCHEMES = {"grpc": False, "grpcs": True}


@dataclass(frozen=True, slots=True)
class TLS:
    """How to trust the server, and how to be trusted by it (mutual TLS).

    Without `authority` the system's roots are trusted. `certificate` and `key` go together. `server_name` is the name
    in the server's certificate, when it is not the one that is dialled.
    """

    authority: Path | str | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            raise UsageError(f"the TLS {given} was given without its {missing}; give both or neither")


@dataclass(frozen=True, slots=True)
class Addresses:
    """One or more servers that serve the same models, and whether they speak TLS."""

    targets: tuple[str, ...]
    secure: bool

    def __str__(self) -> str:
        return ", ".join(self.targets)


def parse_addresses(url: str | Sequence[str]) -> Addresses:
    """`host`, `host:port`, `grpc://…`, `grpcs://…` (TLS) or `dns:///name:port`; several in a list or with commas."""
    written = [part.strip() for part in (url.split(",") if isinstance(url, str) else url)]
    if not written or not all(written):
        raise UsageError(f"the server address {url!r} is empty; write host:port, for example localhost:{DEFAULT_PORT}")
    parsed = [_parse_one(one) for one in written]
    if len({secure for _, secure in parsed}) > 1:
        raise UsageError(f"{', '.join(written)}: either all addresses are grpcs:// or none is")
    return Addresses(targets=tuple(dict.fromkeys(target for target, _ in parsed)), secure=parsed[0][1])


def _parse_one(written: str) -> tuple[str, bool]:
    if written.startswith("dns://"):  # gRPC's own form; between the slashes may stand the name server to ask
        name_server, slash, name = written.removeprefix("dns://").partition("/")
        if not slash:
            raise UsageError(f"{written!r} has no name; write dns:///name:port")
        return f"dns://{name_server}/{_with_port(name, written)}", False
    scheme, separator, rest = written.rpartition("://")
    if separator and scheme not in _SCHEMES:
        raise UsageError(
            f"{written!r} is not an address of a gRPC server; write host:port, grpc://host:port or grpcs://host:port "
            f"(Triton's gRPC port is usually {DEFAULT_PORT})"
        )
    return _with_port(rest.rstrip("/"), written), _SCHEMES.get(scheme, False)


def _with_port(rest: str, written: str) -> str:
    """`rest` with the default port when it has none; an IPv6 address needs its brackets."""
    host, colon, port = rest.rpartition(":")
    if rest.endswith("]") or not colon:
        host, port = rest, str(DEFAULT_PORT)
    bracketed = host.startswith("[") and host.endswith("]")
    if not host or any(character in host for character in "/ @") or (":" in host and not bracketed):
        raise UsageError(f"{written!r} is not host:port (write an IPv6 address in brackets: [::1]:{DEFAULT_PORT})")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"the port of {written!r} must be a number between 1 and 65535")
    return f"{host}:{port}"
