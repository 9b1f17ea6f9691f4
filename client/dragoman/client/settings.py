"""How a translator was set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.client.addresses import TLS, parse_addresses
from dragoman.client.channels import Connection
from dragoman.client.client_decoding import ClientDecoding
from dragoman.client.options import CheckedOptions, RequestOptions, check_options, encode_text
from dragoman.client.retry import RetryPolicy
from dragoman.errors import ServerError, UsageError
from dragoman.wire import TRANSLATE

__all__ = ["BULK_TIMEOUT_S", "CHECK_TIMEOUT_S", "CallSettings", "Decoding", "settings_of"]

BULK_TIMEOUT_S = 120.0
"""A request of a long job may wait this long, and be sent again that long: a server may be restarted meanwhile."""

CHECK_TIMEOUT_S = 5.0

Decoding = Literal["server", "client"] | ClientDecoding

_OF_THE_SERVER: Mapping[str, object] = {
    "format": "text",
    "glossary": None,
    "alignment": False,
    "alternatives_at": [],
    "on_suspicion": "ignore",
}
"""Options that only a search in the server has, with the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """`plan` is None when the server decodes."""

    connection: Connection
    model: str | None
    plan: ClientDecoding | None
    timeout_s: float

    def check(self, options: RequestOptions) -> CheckedOptions:
        """The options of one call."""
        return self._possible(check_options(options, self.model, self.timeout_s))

    def check_for_many(self, options: RequestOptions) -> CheckedOptions:
        """The options of a long job: interactive requests go first, and it has time."""
        wanted: RequestOptions = {"priority": "batch", "timeout_s": BULK_TIMEOUT_S}
        wanted.update(options)
        return self._possible(check_options(wanted, self.model, BULK_TIMEOUT_S))

    def _possible(self, options: CheckedOptions) -> CheckedOptions:
        """UsageError for what a search in the client can't do: the server would only refuse it later."""
        for name, harmless in _OF_THE_SERVER.items() if self.plan is not None else ():
            if options.sent.get(name, harmless) != harmless:
                raise UsageError(
                    f"{name} needs the search of the server, and decoding='client' searches here; leave {name} out, or use "
                    "a translator without decoding='client'"
                )
        return options

    def not_ready(self, server: int) -> ServerError:
        """A Triton that answers but can't translate."""
        address = self.connection.addresses.targets[server]
        return ServerError(
            f"{address} has no model {TRANSLATE.name!r} that is ready: it is still starting, or it is another Triton; "
            "see `dragoman status`"
        )

    def job(self, options: CheckedOptions, output_format: str) -> dict[str, object]:
        """What makes an interrupted file the same job: everything that changes its text."""
        sent = {name: value for name, value in options.sent.items() if name not in ("priority", "request_id", "cache")}
        return {**sent, "model": self.model, "format": output_format}


def settings_of(
    url: str | Sequence[str],
    *,
    model: str | None,
    decoding: Decoding,
    timeout_s: float,
    tls: TLS | None,
    retry: RetryPolicy | None,
    keepalive_s: float,
) -> CallSettings:
    """Check a translator's arguments."""
    if decoding not in ("server", "client") and not isinstance(decoding, ClientDecoding):
        raise UsageError(f"decoding={decoding!r} must be 'server', 'client' or a ClientDecoding")
    plan = None if decoding == "server" else ClientDecoding() if decoding == "client" else decoding
    connection = Connection(parse_addresses(url), tls, keepalive_s, retry or RetryPolicy())
    if model is not None:
        encode_text(model, "model")
    settings = CallSettings(connection, model, plan, timeout_s)
    settings.check({})  # an impossible timeout is better named here than at the first call
    return settings
