"""gRPC channels to the servers: credentials, keepalive and limits, the same for both translators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2_grpc

from dragoman.client.addresses import TLS, Addresses
from dragoman.client.retry import RetryPolicy
from dragoman.errors import UsageError

__all__ = [
    "PROBE_TIMEOUT_S",
    "SILENCE_S",
    "Channel",
    "Connection",
    "Stub",
    "open_channels",
    "stub_of",
]

SILENCE_S = 2.0
"""With several servers: a call waits this long before its server is checked for being alive."""

PROBE_TIMEOUT_S = 1.0
"""A server that does not answer a health check within this time is left out."""

Channel = Any
Stub = Any
"""Triton's service on a channel; neither it nor gRPC has types."""

_PING_TIMEOUT_MS = 5_000
_CONNECT_TIMEOUT_MS = 2_000
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the servers. `keepalive_s` is how often a connection with a waiting call is pinged."""

    addresses: Addresses
    tls: TLS | None
    keepalive_s: float
    retry: RetryPolicy

    def __post_init__(self) -> None:
        if self.keepalive_s <= 0:
            raise UsageError(f"keepalive_s={self.keepalive_s} must be above 0")
        if self.tls is None and self.addresses.secure:
            object.__setattr__(self, "tls", TLS())


def open_channels(connection: Connection, library: Any = grpc) -> list[Channel]:  # noqa: ANN401 - a module
    """One channel per server, blocking or of `grpc.aio`; nothing is dialled before the first call."""
    options, credentials = _options(connection), _credentials(connection.tls)
    if credentials is None:
        return [library.insecure_channel(target, options) for target in connection.addresses.targets]
    return [library.secure_channel(target, credentials, options) for target in connection.addresses.targets]


def stub_of(channel: Channel) -> Stub:
    """Triton's service on a channel."""
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def _options(connection: Connection) -> list[tuple[str, int | str]]:
    options: list[tuple[str, int | str]] = [
        ("grpc.lb_policy_name", "round_robin"),  # a DNS name with several addresses is one channel over all of them
        ("grpc.enable_retries", 0),  # retry.py decides, with a deadline and a budget
        ("grpc.keepalive_time_ms", int(connection.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        # A ping of gRPC's own may be on its way already; then none is sent for keepalive, and this is what ends the wait.
        ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
        # A server that was restarted is found within half a second, at its new address where its name has another.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_TIMEOUT_MS),  # despite its name: what one attempt to connect may take
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
        ("grpc.max_receive_message_length", _LARGEST_ANSWER_BYTES),
    ]
    if connection.tls is not None and connection.tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", connection.tls.server_name))
    return options


def _credentials(tls: TLS | None) -> grpc.ChannelCredentials | None:
    if tls is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_pem(tls.authority), private_key=_pem(tls.key), certificate_chain=_pem(tls.certificate)
    )


def _pem(path: Path | str | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"the TLS file {path} can't be read: {error.strerror}") from None
    if b"-----BEGIN " not in content:  # gRPC would only say that a handshaker could not be created
        raise UsageError(f"the TLS file {path} is not PEM (it has no -----BEGIN line); convert it with openssl")
    return content
