"""`dragoman serve`: bundles behind the real Triton."""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
from pathlib import Path
from typing import get_args

from dragoman import native
from dragoman.bundle.manifest import read_manifest
from dragoman.errors import ServeError, UsageError
from dragoman.serving.argument_types import address, address_or_off, count, gpu_number, seconds, size
from dragoman.serving.config import BundleSpec, ServerConfig, Timeouts
from dragoman.serving.console import Console
from dragoman.serving.logs import configure_logging
from dragoman.serving.process.settings import EngineOptions
from dragoman.serving.runtime.settings import Device
from dragoman.serving.supervisor.ports import free_port, require_free
from dragoman.serving.supervisor.supervisor import Supervisor
from dragoman.serving.text.glossary import read_glossary
from dragoman.serving.triton.flags import Address, Tls
from dragoman.wire import Limits

__all__ = ["HELP", "configure", "run"]

HELP = "Serve exported bundles behind Triton, with continuous batching; Ctrl-C drains, SIGHUP reloads the bundles."

_EXAMPLES = """
examples:
  dragoman serve --bundle bundles/en-de
  dragoman serve --bundle en-de=bundles/en-de --bundle de-en=bundles/de-en --grpc-address 127.0.0.1:9001
  dragoman serve --bundle bundles/en-de --glossary travel=terms.tsv --max-memory 2G --engines 2

exit codes: 0 drained after a signal, 1 the server could not start or failed, 2 wrong usage
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the arguments."""
    parser.epilog = _EXAMPLES
    limits, timeouts = Limits(), Timeouts()
    add = parser.add_argument
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
    listen = parser.add_argument_group("addresses (loopback by default; port 0 takes a free one)")
    listen.add_argument(
        "--grpc-address",
        type=address,
        default=Address("127.0.0.1", 8001),
        metavar="HOST:PORT",
        help="where callers connect (default: %(default)s)",
    )
    listen.add_argument(
        "--metrics-address",
        type=address_or_off,
        default=Address("127.0.0.1", 8002),
        metavar="HOST:PORT|off",
        help="Prometheus metrics at /metrics (default: %(default)s)",
    )
    listen.add_argument(
        "--http-address", type=address_or_off, metavar="HOST:PORT|off", help="Triton's HTTP API (default: off)"
    )
    listen.add_argument(
        "--allow-remote", action="store_true", help="let the embedded Triton listen on other addresses than loopback"
    )
    room = parser.add_argument_group("limits and resources")
    room.add_argument(
        "--device",
        choices=get_args(Device),
        default="cpu",
        help="what computes: the CPU, TensorRT with the bundle's engines, or ONNX Runtime's CUDA provider (default: cpu)",
    )
    room.add_argument("--gpu", type=gpu_number, metavar="N", help="number of the GPU (default: 0)")
    room.add_argument(
        "--engines",
        type=count,
        default=1,
        metavar="N",
        help="engine processes per bundle, which share the load (default: 1)",
    )
    room.add_argument(
        "--threads", type=count, metavar="N", help="compute threads per engine (default: all cores; int8: all but one)"
    )
    room.add_argument(
        "--max-batch", type=count, metavar="ROWS", help="rows decoded together; a beam size of 4 takes four (default: 128)"
    )
    room.add_argument(
        "--max-queue", type=count, metavar="N", help="sentences that may wait; more are refused at once (default: 1024)"
    )
    room.add_argument("--max-sessions", type=count, metavar="N", help="open client-driven sessions (default: 64)")
    room.add_argument("--max-memory", type=size, metavar="SIZE", help="refuse to start if a bundle may need more, e.g. 2G")
    room.add_argument(
        "--max-beam-size",
        type=count,
        default=limits.max_beam_size,
        metavar="N",
        help="largest beam size of a request (default: %(default)s)",
    )
    room.add_argument(
        "--max-texts", type=count, default=limits.max_texts, metavar="N", help="texts in a request (default: %(default)s)"
    )
    room.add_argument(
        "--max-text-bytes",
        type=size,
        default=limits.max_text_bytes,
        metavar="SIZE",
        help="length of a text (default: %(default)s bytes)",
    )
    room.add_argument(
        "--response-cache",
        type=size,
        default=32 << 20,
        metavar="SIZE",
        help="memory for repeated texts; 0 turns it off (default: 32M)",
    )
    access = parser.add_argument_group("access control")
    access.add_argument("--tls-certificate", type=Path, metavar="PEM", help="serve gRPC with TLS and this certificate")
    access.add_argument("--tls-key", type=Path, metavar="PEM", help="private key of --tls-certificate")
    access.add_argument("--tls-client-roots", type=Path, metavar="PEM", help="require client certificates signed by these")
    access.add_argument(
        "--tls-server-name",
        default="localhost",
        metavar="NAME",
        help="a name in the certificate, for the health probe (default: %(default)s)",
    )
    access.add_argument(
        "--admin-token-file", type=Path, metavar="FILE", help="open Triton's admin endpoints to callers that send this token"
    )
    life = parser.add_argument_group("life cycle")
    life.add_argument(
        "--start-timeout",
        type=seconds,
        default=timeouts.start_s,
        metavar="S",
        help="until the server must be ready (default: %(default)g)",
    )
    life.add_argument(
        "--hang-timeout",
        type=seconds,
        default=timeouts.hang_s,
        metavar="S",
        help="replace an engine that is silent for this long (default: %(default)g; more if its steps are slow)",
    )
    life.add_argument(
        "--drain-timeout",
        type=seconds,
        default=timeouts.drain_s,
        metavar="S",
        help="for admitted requests after SIGTERM or Ctrl-C (default: %(default)g)",
    )
    life.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="least severe lines that are logged (default: %(default)s)",
    )
    life.add_argument("--log-requests", action="store_true", help="log a line for each request (never its text)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    native.require_libraries()
    config = server_config(arguments)
    configure_logging(config.log_level, "supervisor")
    asyncio.run(Supervisor(config, Console(config)).run())
    return 0


def server_config(arguments: argparse.Namespace) -> ServerConfig:
    """The configuration of the arguments, checked as far as possible before anything is started."""
    addresses = {
        "--grpc-address": _listenable("--grpc-address", arguments.grpc_address),
        "--metrics-address": _listenable("--metrics-address", arguments.metrics_address),
        "--http-address": _listenable("--http-address", arguments.http_address),
    }
    grpc = addresses["--grpc-address"]
    if grpc is None:
        raise UsageError("--grpc-address can't be off: it is how callers reach the server")
    return ServerConfig(
        bundles=_bundles(arguments.bundle or []),
        grpc=grpc,
        metrics=addresses["--metrics-address"],
        http=addresses["--http-address"],
        tls=_tls(arguments),
        tls_server_name=arguments.tls_server_name,
        allow_remote=arguments.allow_remote,
        admin_token=_token(arguments.admin_token_file),
        engine=EngineOptions(
            device=arguments.device,
            gpu=_gpu(arguments),
            threads=arguments.threads,
            max_batch=arguments.max_batch,
            max_queue=arguments.max_queue,
            max_sessions=arguments.max_sessions,
            max_memory_bytes=arguments.max_memory and arguments.max_memory // arguments.engines,
            response_cache_bytes=arguments.response_cache // arguments.engines,
        ),
        engines=arguments.engines,
        limits=Limits(
            max_texts=arguments.max_texts,
            max_text_bytes=arguments.max_text_bytes,
            max_beam_size=arguments.max_beam_size,
        ),
        timeouts=Timeouts(arguments.start_timeout, arguments.hang_timeout, arguments.drain_timeout),
        log_level=arguments.log_level,
        log_requests=arguments.log_requests,
        glossaries=_glossaries(arguments.glossary or []),
    )


def _bundles(given: list[str]) -> tuple[BundleSpec, ...]:
    if not given:
        raise UsageError("nothing to serve: give --bundle PATH (make a bundle with `dragoman export`)")
    bundles = []
    for each in given:
        name, named, path = each.partition("=")
        where = Path(path if named else each).absolute()  # links stay: a reload follows them again
        manifest = read_manifest(where)
        bundles.append(BundleSpec(_checked_name(name) if named else _own_name(manifest.model.name), where))
    names = [bundle.name for bundle in bundles]
    if len(set(names)) < len(names):
        raise UsageError(f"two bundles have the same name ({', '.join(names)}); name them: --bundle NAME=PATH")
    return tuple(bundles)


def _glossaries(given: list[str]) -> tuple[tuple[str, Path], ...]:
    """Name and file of each, which are read once to see whether they can be."""
    found: dict[str, Path] = {}
    for each in given:
        name, named, path = each.partition("=")
        if not (named and path):
            raise UsageError(f"--glossary {each}: write NAME=FILE.tsv")
        if _checked_name(name, "a glossary") in found:
            raise UsageError(f"two glossaries have the name {name}")
        found[name] = Path(path).absolute()
        read_glossary(found[name])
    return tuple(found.items())


def _checked_name(name: str, what: str = "a bundle") -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} can't name {what}; use up to 40 letters, digits, - and _")
    return name


def _own_name(model: str) -> str:
    """The model's name without its owner, in letters that a name may have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", model.rpartition("/")[2]).strip("-_")[:40] or "model"


def _listenable(option: str, wanted: Address | None) -> Address | None:
    if wanted is None:
        return None
    require_free(wanted, option)
    return wanted if wanted.port else Address(wanted.host, free_port(wanted.host))


def _tls(arguments: argparse.Namespace) -> Tls | None:
    files = {name: getattr(arguments, name) for name in ("tls_certificate", "tls_key", "tls_client_roots")}
    if not any(files.values()):
        return None
    if not (arguments.tls_certificate and arguments.tls_key):
        raise UsageError("TLS needs both --tls-certificate and --tls-key")
    for name, path in files.items():
        if path is not None and not path.is_file():
            raise ServeError(f"--{name.replace('_', '-')} {path}: there is no such file")
    return Tls(arguments.tls_certificate.resolve(), arguments.tls_key.resolve(), arguments.tls_client_roots)


def _gpu(arguments: argparse.Namespace) -> int:
    if arguments.gpu is not None and arguments.device == "cpu":
        raise UsageError(f"--gpu {arguments.gpu} only means something with --device tensorrt or --device cuda")
    return arguments.gpu or 0


def _token(path: Path | None) -> str:
    """The secret of the admin endpoints: the operator's, or a random one."""
    if path is None:
        return secrets.token_urlsafe(32)
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServeError(f"--admin-token-file {path}: {error.strerror}") from error
    if not re.fullmatch(r"[A-Za-z0-9_-]{16,}", token):
        raise ServeError(f"--admin-token-file {path} must hold 16 or more letters, digits, - and _")
    return token
