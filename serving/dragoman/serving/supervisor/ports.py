"""Whether an address is free: checked before anything is started, because Triton would only log it."""

from __future__ import annotations

import socket

from dragoman.errors import ServeError
from dragoman.serving.triton.flags import Address

__all__ = ["free_port", "require_free"]


def require_free(address: Address, option: str) -> None:
    """ServeError when `address` is in use, or is not an address of this machine."""
    try:
        _bind(address).close()
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise ServeError(f"{option} {address}: {address.host!r} is no address of this machine") from None
        raise ServeError(f"can't listen at {address}: {error.strerror}; choose another address with {option}") from None


def free_port(host: str) -> int:
    """A port that is free now."""
    with _bind(Address(host, 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def _bind(address: Address) -> socket.socket:
    family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address.host, address.port))
    except OSError:
        bound.close()
        raise
    return bound
