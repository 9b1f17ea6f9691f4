"""TLS and mutual TLS on a real server, with certificates of a small authority made for the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from served import Caller, Server

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@dataclass(frozen=True)
class Authority:
    """Signs certificates in its directory."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "root.pem"

    def make_root(self) -> Authority:
        self.directory.mkdir()
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", "/CN=Test authority", "-keyout", "root.key", "-out", "root.pem"),
        )
        return self

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for `localhost` and its key."""
        (self.directory / "names.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", encoding="utf-8")
        self._openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial"),
            *("-days", "2", "-extfile", "names.ext", "-out", f"{name}.pem"),
        )
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours").make_root()


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "theirs").make_root()


@pytest.fixture(scope="module")
def mutual(reference_bundle: Path, authority: Authority) -> Iterator[Server]:
    certificate, key = authority.issue("server")
    arguments = ["--tls-certificate", str(certificate), "--tls-key", str(key), "--tls-client-roots", str(authority.root)]
    with Server.start([f"en-de={reference_bundle}"], *arguments) as server:
        yield server


def asks(server: Server, credentials: grpc.ChannelCredentials | None) -> list[str]:
    caller = Caller(server.grpc, credentials)
    try:
        return caller.translate(["It is raining."]).best
    finally:
        caller.close()


def credentials(roots: Authority, shown: tuple[Path, Path] | None) -> grpc.ChannelCredentials:
    certificate, key = (path.read_bytes() for path in shown) if shown else (None, None)
    return grpc.ssl_channel_credentials(roots.root.read_bytes(), key, certificate)


def test_a_server_with_tls_probes_itself_and_serves_clients_that_trust_it(
    reference_bundle: Path, authority: Authority
) -> None:
    certificate, key = authority.issue("plain")
    arguments = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with Server.start([f"en-de={reference_bundle}"], *arguments) as server:
        assert asks(server, credentials(authority, None))
        with pytest.raises(grpc.RpcError):
            asks(server, None)


def test_a_client_with_a_trusted_certificate_is_served(mutual: Server, authority: Authority) -> None:
    assert asks(mutual, credentials(authority, authority.issue("client")))


def test_a_caller_without_a_certificate_is_not(mutual: Server, authority: Authority) -> None:
    with pytest.raises(grpc.RpcError) as error:
        asks(mutual, credentials(authority, None))
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_caller_with_a_strangers_certificate_is_not(mutual: Server, authority: Authority, stranger: Authority) -> None:
    with pytest.raises(grpc.RpcError) as error:
        asks(mutual, credentials(authority, stranger.issue("client")))
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_that_trusts_another_authority_does_not_connect(mutual: Server, stranger: Authority) -> None:
    with pytest.raises(grpc.RpcError) as error:
        asks(mutual, credentials(stranger, None))
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_caller_without_tls_is_not_served(mutual: Server) -> None:
    with pytest.raises(grpc.RpcError) as error:
        asks(mutual, None)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
