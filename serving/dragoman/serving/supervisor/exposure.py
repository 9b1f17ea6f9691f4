"""Where the embedded Triton may listen."""

from __future__ import annotations

import ipaddress
import socket

from dragoman.errors import ServeError
from dragoman.serving.config import ServerConfig
from dragoman.serving.triton.installation import Installation

__all__ = ["is_loopback", "require_loopback"]


def require_loopback(config: ServerConfig, installation: Installation) -> None:
    """ServeError when the embedded Triton would take requests from other machines without --allow-remote."""
    if installation.kind != "embedded" or config.allow_remote:
        return
    for option, address in (("--grpc-address", config.grpc), ("--http-address", config.http)):
        if address is not None and not is_loopback(address.host):
            raise ServeError(
                f"{option} {address} is open to other machines, any of which could bring the embedded Triton 2.51 down with "
                "one request (later releases fix these bugs; docs/operations.md names them): use the official Triton "
                "container, listen on 127.0.0.1, or accept the risk with --allow-remote"
            )


def is_loopback(host: str) -> bool:
    """Whether all addresses of `host` belong to the loopback interface."""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)
