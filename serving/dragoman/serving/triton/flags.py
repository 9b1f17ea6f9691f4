"""The flags with which tritonserver is started, in one place for the container and the embedded server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Address", "Tls", "TritonFlags"]

CLOSED_BY_DEFAULT = ("shared-memory", "model-repository", "trace", "logging")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port to listen on; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; with `client_roots` callers must present a certificate signed by one of them (mTLS)."""

    certificate: Path
    key: Path
    client_roots: Path | None = None


@dataclass(frozen=True, slots=True)
class TritonFlags:
    """Every flag of tritonserver.

    `admin_token` guards the endpoints in `CLOSED_BY_DEFAULT`: a caller must send it as the metadata
    `triton-grpc-protocol-admin-token`. It is random unless the operator chose one, which closes them.
    """

    model_repository: Path
    backend_directory: Path
    grpc: Address
    metrics: Address | None
    admin_token: str
    http: Address | None = None
    tls: Tls | None = None
    exit_timeout_s: int = 10
    verbose: bool = False

    def argv(self) -> list[str]:
        return [
            f"--model-repository={self.model_repository}",
            f"--backend-directory={self.backend_directory}",
            "--disable-auto-complete-config",
            "--model-control-mode=none",
            f"--exit-timeout-secs={self.exit_timeout_s}",
            f"--log-info={_flag(self.verbose)}",
            *self._grpc(),
            *self._http(),
            *self._metrics(),
        ]

    def _grpc(self) -> list[str]:
        flags = [
            "--allow-grpc=true",
            f"--grpc-address={self.grpc.host}",
            f"--grpc-port={self.grpc.port}",
            f"--grpc-restricted-protocol={','.join(CLOSED_BY_DEFAULT)}:admin-token={self.admin_token}",
            # Shows the backend a stream for which an error response would be dangerous.
            "--grpc-header-forward-pattern=triton_grpc_error",
            # A client may ping an idle connection every ten seconds without being thrown out.
            "--grpc-http2-min-recv-ping-interval-without-data=5000",
            "--grpc-keepalive-permit-without-calls=1",
        ]
        if self.tls is not None:
            flags += [
                "--grpc-use-ssl=true",
                f"--grpc-server-cert={self.tls.certificate}",
                f"--grpc-server-key={self.tls.key}",
            ]
            if self.tls.client_roots is not None:
                flags += ["--grpc-use-ssl-mutual=true", f"--grpc-root-cert={self.tls.client_roots}"]
        return flags

    def _http(self) -> list[str]:
        if self.http is None:
            return ["--allow-http=false"]
        return [
            "--allow-http=true",
            f"--http-address={self.http.host}",
            f"--http-port={self.http.port}",
            f"--http-restricted-api={','.join(CLOSED_BY_DEFAULT)}:admin-token={self.admin_token}",
        ]

    def _metrics(self) -> list[str]:
        if self.metrics is None:
            return ["--allow-metrics=false"]
        return [
            "--allow-metrics=true",
            "--allow-gpu-metrics=false",
            "--allow-cpu-metrics=false",
            f"--metrics-address={self.metrics.host}",
            f"--metrics-port={self.metrics.port}",
        ]


def _flag(value: bool) -> str:
    return "true" if value else "false"
