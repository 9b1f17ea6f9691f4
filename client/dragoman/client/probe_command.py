"""`dragoman probe`: one real translation, for the health checks of containers and orchestrators."""

from __future__ import annotations

import argparse

import grpc

from dragoman.client.addresses import parse_addresses
from dragoman.client.channels import Connection, open_channels, stub_of
from dragoman.client.command_options import above_zero, add_server_flags, add_tls_flags, quiet_grpc, tls_of
from dragoman.client.failures import Retry, read_message, read_status
from dragoman.client.options import check_options
from dragoman.client.requests import translate_builder
from dragoman.client.retry import RetryPolicy
from dragoman.errors import UsageError

__all__ = ["HELP", "configure", "run"]

HELP = "Translate one word; the exit code is 0 if that worked: a health check of the whole server."

_EXAMPLES = """
examples:
  dragoman probe --server localhost:8001          # ready: can this server translate now?
  dragoman probe --server localhost:8001 --live   # alive: also if it is full or draining

Exit code 0 when the server answered, 1 otherwise.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.epilog = _EXAMPLES
    add_server_flags(parser)
    parser.add_argument("--model", metavar="NAME", help="bundle to use, if the server has several")
    parser.add_argument(
        "--live", action="store_true", help="accept refusals (overloaded, draining, restarting) as signs of life"
    )
    parser.add_argument(
        "--timeout", type=above_zero, default=5.0, metavar="SECONDS", help="time limit of the answer (default: 5)"
    )
    add_tls_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """0 when the server answered."""
    connection = Connection(parse_addresses(arguments.server), tls_of(arguments), 60.0, RetryPolicy.never())
    addresses = connection.addresses.targets
    if len(addresses) != 1:
        raise UsageError(f"--server {arguments.server} names {len(addresses)} servers; probe one at a time")
    quiet_grpc()
    # Not from the response cache, and only one token of it: the probe must cost next to nothing, but be decoded.
    options = check_options({"cache": False, "max_length": 1, "beam_size": 1}, arguments.model, arguments.timeout)
    request = translate_builder(["ok"], options)(arguments.timeout)
    channel = open_channels(connection)[0]
    try:
        stub_of(channel).ModelInfer(request, timeout=arguments.timeout)
    except grpc.RpcError as error:
        _judge(error, addresses[0], arguments.live)
    finally:
        channel.close()
    return 0


def _judge(error: grpc.RpcError, address: str, live: bool) -> None:
    """Return when the failure shows a server that is alive, and that is enough; raise what is wrong otherwise."""
    details = error.details() or ""
    refusal = read_message(details)
    # Only refusals that pass by themselves are signs of life: an INTERNAL error is what restarts are for.
    if live and refusal is not None and refusal.retry is not Retry.NEVER:
        return
    raise read_status(error.code(), details, address).error
