"""`dragoman status`: what servers are doing."""

from __future__ import annotations

import argparse
import dataclasses
import json

from dragoman.client.addresses import parse_addresses
from dragoman.client.blocking import BlockingCalls
from dragoman.client.blocking import run as run_blocking
from dragoman.client.channels import Connection
from dragoman.client.command_options import above_zero, add_server_flags, add_tls_flags, quiet_grpc, tls_of
from dragoman.client.prometheus import check_metrics_url
from dragoman.client.retry import RetryPolicy
from dragoman.client.status import server_status
from dragoman.client.tables import print_status
from dragoman.client.transport import Transport
from dragoman.errors import TransportError, UsageError

__all__ = ["HELP", "configure", "run"]

HELP = "Show what servers serve and how busy they are: bundles, languages, precision, versions, live rates."

_EXAMPLES = """
examples:
  dragoman status
  dragoman status --server localhost:8001 --json

Exit code 0 when every server can translate, 1 otherwise.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.epilog = _EXAMPLES
    add_server_flags(parser)
    parser.add_argument("--metrics", metavar="URL", help="metrics endpoint (default: the server tells it)")
    parser.add_argument(
        "--watch", type=above_zero, default=1.0, metavar="SECONDS", help="how long to measure rates (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array of servers")
    add_tls_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status of each server; 0 when all of them can translate."""
    connection = Connection(parse_addresses(arguments.server), tls_of(arguments), 60.0, RetryPolicy.never())
    addresses = connection.addresses.targets
    if arguments.metrics and len(addresses) > 1:
        raise UsageError("--metrics names the endpoint of one server; query one server at a time with it")
    quiet_grpc()
    if arguments.metrics:
        check_metrics_url(arguments.metrics)
    transport = Transport(connection, BlockingCalls(connection))
    try:
        found = [
            run_blocking(server_status(transport, server, arguments.metrics, arguments.watch))
            for server in range(len(addresses))
        ]
    finally:
        run_blocking(transport.calls.close())
    if arguments.json:
        print(json.dumps([dataclasses.asdict(status) for status in found], indent=2))
    else:
        print_status(found)
    problems = [status.problem for status in found if status.problem is not None]
    if problems:
        raise TransportError(problems[0])
    return 0
