"""Wrong addresses, wrong ports, TLS and mutual TLS: each problem says what it is and what to do."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from fake_triton import ScriptedTriton

from dragoman.client import TLS, AsyncTranslator, RetryPolicy, Translator
from dragoman.client.addresses import parse_addresses
from dragoman.errors import DragomanError, ServerError, TransportError, UsageError


@pytest.mark.parametrize(
    ("written", "targets", "secure"),
    [
        ("localhost", ("localhost:8001",), False),
        ("localhost:9001", ("localhost:9001",), False),
        ("grpc://10.0.0.1:9001/", ("10.0.0.1:9001",), False),
        ("grpcs://translate.example", ("translate.example:8001",), True),
        ("[::1]:8001", ("[::1]:8001",), False),
        ("[::1]", ("[::1]:8001",), False),
        ("dns:///translate:8001", ("dns:///translate:8001",), False),
        ("dns://10.0.0.2:53/translate", ("dns://10.0.0.2:53/translate:8001",), False),
        ("a:1, b:2,a:1", ("a:1", "b:2"), False),
        (["a:1", "b:2"], ("a:1", "b:2"), False),
    ],
)
def test_an_address_is_read_as_it_is_meant(written: str, targets: tuple[str, ...], secure: bool) -> None:
    addresses = parse_addresses(written)
    assert (addresses.targets, addresses.secure) == (targets, secure)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "a:1,",
        [],
        "http://localhost:8000",
        "a:0",
        "a:99999",
        "a:b",
        "::1:8001",
        "a b:1",
        ":8001",
        "grpcs://a,b",
        "a/b",
        "dns://translate:8001",
        "dns:///",
    ],
)
def test_an_impossible_address_is_a_usage_error(written: str) -> None:
    with pytest.raises(UsageError):
        parse_addresses(written)


@pytest.mark.parametrize(
    "arguments", [{"timeout_s": -1}, {"keepalive_s": 0}, {"decoding": "elsewhere"}, {"url": "http://localhost"}]
)
def test_an_impossible_translator_is_refused_when_it_is_made(arguments: dict[str, object]) -> None:
    with pytest.raises(DragomanError):
        Translator(**arguments)  # type: ignore[arg-type]


def problem(url: str, tls: TLS | None = None) -> DragomanError:
    with (
        Translator(url, tls=tls, retry=RetryPolicy.never(), timeout_s=20) as translator,
        pytest.raises(DragomanError) as caught,
    ):
        translator.translate("hi")
    return caught.value


def test_a_host_that_does_not_exist_is_named() -> None:
    error = problem("no-such-host.invalid:8001")
    assert isinstance(error, TransportError)
    assert "no-such-host.invalid" in str(error)


@pytest.fixture
def web_server() -> Iterator[str]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_http_port_is_recognised(web_server: str) -> None:
    error = problem(web_server)
    assert isinstance(error, TransportError)
    assert "HTTP" in str(error)


def test_a_grpc_server_that_is_no_triton_is_recognised() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    error = problem(f"127.0.0.1:{port}")
    server.stop(None).wait()
    assert type(error) is ServerError
    assert "no Triton" in str(error)


def test_a_triton_that_is_not_ready_is_distinguished_from_a_ready_one(triton: ScriptedTriton) -> None:
    with Translator(triton.url) as translator:
        translator.check()
        triton.ready = False
        with pytest.raises(ServerError, match="ready"):
            translator.check()


def test_one_ready_server_is_enough(triton: ScriptedTriton, other_triton: ScriptedTriton) -> None:
    triton.stop()
    with Translator([triton.url, other_triton.url]) as translator:
        translator.check()


@pytest.fixture
def tls_triton(certificates: Path) -> Iterator[ScriptedTriton]:
    pair = ((certificates / "server.key").read_bytes(), (certificates / "server.pem").read_bytes())
    server = ScriptedTriton(grpc.ssl_server_credentials([pair]))
    yield server
    server.stop()


@pytest.fixture
def mutual_triton(certificates: Path) -> Iterator[ScriptedTriton]:
    pair = ((certificates / "server.key").read_bytes(), (certificates / "server.pem").read_bytes())
    authority = (certificates / "authority.pem").read_bytes()
    server = ScriptedTriton(grpc.ssl_server_credentials([pair], authority, require_client_auth=True))
    yield server
    server.stop()


def test_tls_reaches_a_server_with_a_trusted_certificate(tls_triton: ScriptedTriton, certificates: Path) -> None:
    with Translator(f"grpcs://{tls_triton.url}", tls=TLS(certificates / "authority.pem")) as translator:
        assert translator.translate("hi").text == "HI"


def test_mutual_tls_lets_a_known_client_in(mutual_triton: ScriptedTriton, certificates: Path) -> None:
    tls = TLS(certificates / "authority.pem", certificates / "client.pem", certificates / "client.key")

    async def main() -> str:
        async with AsyncTranslator(mutual_triton.url, tls=tls) as translator:
            return (await translator.translate("hi")).text

    assert asyncio.run(main()) == "HI"


def test_mutual_tls_without_a_certificate_names_what_is_missing(mutual_triton: ScriptedTriton, certificates: Path) -> None:
    error = problem(mutual_triton.url, TLS(certificates / "authority.pem"))
    assert isinstance(error, TransportError)
    assert "certificate" in str(error)


def test_a_certificate_of_an_unknown_authority_is_refused(tls_triton: ScriptedTriton) -> None:
    assert "not signed by a trusted authority" in str(problem(f"grpcs://{tls_triton.url}"))


def test_a_certificate_for_another_name_is_refused(tls_triton: ScriptedTriton, certificates: Path) -> None:
    tls = TLS(certificates / "authority.pem", server_name="other.test")
    assert "another name" in str(problem(tls_triton.url, tls))


def test_the_name_in_the_certificate_can_be_given(tls_triton: ScriptedTriton, certificates: Path) -> None:
    tls = TLS(certificates / "authority.pem", server_name="translator.test")
    with Translator(tls_triton.url, tls=tls) as translator:
        assert translator.translate("hi").text == "HI"


def test_tls_to_a_server_without_it_is_a_clear_error(triton: ScriptedTriton, certificates: Path) -> None:
    assert "does not speak TLS" in str(problem(triton.url, TLS(certificates / "authority.pem")))


def test_no_tls_to_a_server_with_it_is_a_clear_error(tls_triton: ScriptedTriton) -> None:
    assert "grpcs://" in str(problem(tls_triton.url))


def test_a_tls_mismatch_is_not_retried(tls_triton: ScriptedTriton) -> None:
    slow = RetryPolicy(first_wait_s=60, longest_wait_s=60)
    with Translator(f"grpcs://{tls_triton.url}", retry=slow) as translator, pytest.raises(TransportError):
        translator.translate("hi", timeout_s=120)


@pytest.mark.parametrize("content", [None, b"not a certificate"])
def test_a_tls_file_that_is_none_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"authority\.pem"):
        Translator(tls=TLS(path))


def test_a_certificate_needs_its_key(certificates: Path) -> None:
    with pytest.raises(UsageError, match="without its key"):
        TLS(certificate=certificates / "client.pem")
