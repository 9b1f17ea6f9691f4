from pathlib import Path

import pytest

from dragoman.serving.triton.flags import Address, Tls, TritonFlags

PLAIN = {
    "model_repository": Path("models"),
    "backend_directory": Path("backends"),
    "grpc": Address("127.0.0.1", 8001),
    "metrics": Address("127.0.0.1", 8002),
    "admin_token": "secret",
}


def argv(**changes: object) -> list[str]:
    return TritonFlags(**{**PLAIN, **changes}).argv()  # type: ignore[arg-type]


@pytest.mark.parametrize("endpoint", ["shared-memory", "model-repository", "trace", "logging"])
def test_admin_endpoints_need_the_token(endpoint: str) -> None:
    (restriction,) = [flag for flag in argv() if flag.startswith("--grpc-restricted-protocol=")]
    protocols, _, key = restriction.partition("=")[2].partition(":")
    assert endpoint in protocols.split(",")
    assert key == "admin-token=secret"


def test_http_is_closed_by_default() -> None:
    assert "--allow-http=false" in argv()
    assert "--http-address=127.0.0.1" in argv(http=Address("127.0.0.1", 8000))


def test_http_admin_endpoints_need_the_token_too() -> None:
    flags = argv(http=Address("127.0.0.1", 8000))
    assert any(flag.startswith("--http-restricted-api=shared-memory") for flag in flags)


def test_metrics_can_be_left_out() -> None:
    assert "--allow-metrics=false" in argv(metrics=None)


def test_tls_names_its_files() -> None:
    flags = argv(tls=Tls(Path("cert.pem"), Path("key.pem")))
    assert {"--grpc-use-ssl=true", "--grpc-server-cert=cert.pem", "--grpc-server-key=key.pem"} <= set(flags)
    assert "--grpc-use-ssl-mutual=true" not in flags


def test_mutual_tls_requires_client_certificates() -> None:
    flags = argv(tls=Tls(Path("cert.pem"), Path("key.pem"), Path("roots.pem")))
    assert {"--grpc-use-ssl-mutual=true", "--grpc-root-cert=roots.pem"} <= set(flags)


def test_an_ipv6_address_is_written_with_brackets() -> None:
    assert str(Address("::1", 8001)) == "[::1]:8001"
