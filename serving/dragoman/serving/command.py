"""`dragoman serve`: bundles behind the real Triton."""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
from pathlib import Path

from dragoman import native
from dragoman.bundle.manifest import read_manifest
from dragoman.errors import ServeError, UsageError
from dragoman.serving.config import BundleSpec, ServerConfig, Timeouts
from dragoman.serving.console import Console
from dragoman.serving.logs import configure_logging
from dragoman.serving.process.settings import EngineSettings
from dragoman.serving.serve_flags import add_serve_flags
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
    add_serve_flags(parser)


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
        engine=EngineSettings(
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
        where = Path(path if named else each).absolute()  # links are not resolved: a reload follows them again
        manifest = read_manifest(where)
        bundles.append(BundleSpec(_checked_name(name) if named else _own_name(manifest.model.name), where))
    names = [bundle.name for bundle in bundles]
    if len(set(names)) < len(names):
        raise UsageError(f"two bundles have the same name ({', '.join(names)}); name them: --bundle NAME=PATH")
    return tuple(bundles)


def _glossaries(given: list[str]) -> tuple[tuple[str, Path], ...]:
    """The name and file of each glossary; each file is read once to check it."""
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
    """The model's name without its owner, reduced to the characters that a bundle's name may have."""
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
