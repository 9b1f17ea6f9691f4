"""The flags of `dragoman serve`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from dragoman.serving.argument_types import address, address_or_off, count, gpu_number, seconds, size
from dragoman.serving.config import Timeouts
from dragoman.serving.runtime.settings import Device
from dragoman.serving.triton.flags import Address
from dragoman.wire import Limits

__all__ = ["add_serve_flags"]


def add_serve_flags(parser: argparse.ArgumentParser) -> None:
    """What is served, where, within which limits, to whom and for how long; `--help` shows them in this order."""
    _add_content(parser)
    _add_addresses(parser.add_argument_group("addresses (loopback by default; port 0 takes a free one)"))
    room = parser.add_argument_group("limits and resources")
    _add_resources(room)
    _add_request_limits(room)
    _add_access_control(parser.add_argument_group("access control"))
    _add_life_cycle(parser.add_argument_group("life cycle"))


def _add_content(group: argparse._ActionsContainer) -> None:
    add = group.add_argument
    add(
        "--bundle",
        action="append",
        metavar="[NAME=]PATH",
        help="bundle to serve, under the name NAME (default: the model's); may be given several times",
    )
    add(
        "--glossary",
        action="append",
        metavar="NAME=FILE.tsv",
        help="glossary that requests may name: a term, a tab and its translation per line; may be given several times",
    )


def _add_addresses(group: argparse._ActionsContainer) -> None:
    add = group.add_argument
    add(
        "--grpc-address",
        type=address,
        default=Address("127.0.0.1", 8001),
        metavar="HOST:PORT",
        help="where callers connect (default: %(default)s)",
    )
    add(
        "--metrics-address",
        type=address_or_off,
        default=Address("127.0.0.1", 8002),
        metavar="HOST:PORT|off",
        help="Prometheus metrics at /metrics (default: %(default)s)",
    )
    add("--http-address", type=address_or_off, metavar="HOST:PORT|off", help="Triton's HTTP API (default: off)")
    add("--allow-remote", action="store_true", help="let the embedded Triton listen on other addresses than loopback")


def _add_resources(group: argparse._ActionsContainer) -> None:
    add = group.add_argument
    add(
        "--device",
        choices=get_args(Device),
        default="cpu",
        help="what computes: the CPU, TensorRT with the bundle's engines, or ONNX Runtime's CUDA provider (default: cpu)",
    )
    add("--gpu", type=gpu_number, metavar="N", help="number of the GPU (default: 0)")
    add(
        "--engines",
        type=count,
        default=1,
        metavar="N",
        help="engine processes per bundle, which share the load (default: 1)",
    )
    add("--threads", type=count, metavar="N", help="compute threads per engine (default: all cores; int8: all but one)")
    add("--max-batch", type=count, metavar="ROWS", help="rows decoded together; a beam size of 4 takes four (default: 128)")
    add("--max-queue", type=count, metavar="N", help="sentences that may wait; more are refused at once (default: 1024)")
    add("--max-sessions", type=count, metavar="N", help="open client-driven sessions (default: 64)")
    add("--max-memory", type=size, metavar="SIZE", help="refuse to start if a bundle may need more, e.g. 2G")


def _add_request_limits(group: argparse._ActionsContainer) -> None:
    limits, add = Limits(), group.add_argument
    add(
        "--max-beam-size",
        type=count,
        default=limits.max_beam_size,
        metavar="N",
        help="largest beam size of a request (default: %(default)s)",
    )
    add("--max-texts", type=count, default=limits.max_texts, metavar="N", help="texts in a request (default: %(default)s)")
    add(
        "--max-text-bytes",
        type=size,
        default=limits.max_text_bytes,
        metavar="SIZE",
        help="length of a text (default: %(default)s bytes)",
    )
    add(
        "--response-cache",
        type=size,
        default="32M",
        metavar="SIZE",
        help="memory for repeated texts; 0 turns it off (default: %(default)s)",
    )


def _add_access_control(group: argparse._ActionsContainer) -> None:
    add = group.add_argument
    add("--tls-certificate", type=Path, metavar="PEM", help="serve gRPC with TLS and this certificate")
    add("--tls-key", type=Path, metavar="PEM", help="private key of --tls-certificate")
    add("--tls-client-roots", type=Path, metavar="PEM", help="require client certificates signed by these")
    add(
        "--tls-server-name",
        default="localhost",
        metavar="NAME",
        help="a name in the certificate, for the health probe (default: %(default)s)",
    )
    add(
        "--admin-token-file", type=Path, metavar="FILE", help="open Triton's admin endpoints to callers that send this token"
    )


def _add_life_cycle(group: argparse._ActionsContainer) -> None:
    timeouts, add = Timeouts(), group.add_argument
    add(
        "--start-timeout",
        type=seconds,
        default=timeouts.start_s,
        metavar="S",
        help="until the server must be ready (default: %(default)g)",
    )
    add(
        "--hang-timeout",
        type=seconds,
        default=timeouts.hang_s,
        metavar="S",
        help="replace an engine that is silent for this long (default: %(default)g; more if its steps are slow)",
    )
    add(
        "--drain-timeout",
        type=seconds,
        default=timeouts.drain_s,
        metavar="S",
        help="for admitted requests after SIGTERM or Ctrl-C (default: %(default)g)",
    )
    add(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="least severe lines that are logged (default: %(default)s)",
    )
    add("--log-requests", action="store_true", help="log a line for each request (never its text)")
