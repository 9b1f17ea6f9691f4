"""The probe: a real translation through gRPC, the only proof that everything between a caller and the engine works."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from dragoman import wire
from dragoman.serving.triton.flags import Address, Tls

__all__ = ["Probe", "ProbeFailed"]

_TEXT = b"ok"
_OURS = tuple(code.value for code in wire.ErrorCode)


class ProbeFailed(Exception):
    """There was no answer, or it was not from dragoman."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Requests a short translation from a server.

    `name` is what the server's certificate must be valid for. With mutual TLS the probe presents the server's own
    certificate.
    """

    address: Address
    request_id: str
    tls: Tls | None = None
    name: str = "localhost"

    async def is_listening(self, timeout_s: float) -> bool:
        """Whether Triton reports that it is ready."""
        try:
            async with self.channel() as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                answer = await stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=timeout_s)
                return bool(answer.ready)
        except grpc.aio.AioRpcError:
            return False

    async def translate(self, bundle: str, timeout_s: float) -> None:
        """Return when the bundle's engine answered; ProbeFailed otherwise.

        A refusal by the engine is an answer too: a server that is full or draining is not dead.
        """
        try:
            async with self.channel() as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                await stub.ModelInfer(self._request(bundle), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if not details.startswith(_OURS) or details.startswith(wire.ErrorCode.INTERNAL.value):
                raise ProbeFailed(f"{error.code().name}: {details}") from None

    def _request(self, bundle: str) -> service_pb2.ModelInferRequest:
        options = {"request_id": self.request_id, "max_length": 1, "beam_size": 1, "cache": False}
        request = service_pb2.ModelInferRequest(model_name=wire.TRANSLATE.name)
        sent = ((wire.TEXT, _TEXT), (wire.OPTIONS, json.dumps(options).encode()), (wire.MODEL, bundle.encode()))
        for tensor, value in sent:
            request.inputs.add(name=tensor.name, datatype=tensor.dtype, shape=[1]).contents.bytes_contents.append(value)
        return request

    def channel(self) -> grpc.aio.Channel:
        """A new connection to the server."""
        everywhere = self.address.host in ("0.0.0.0", "::")  # noqa: S104 - the probe itself stays on loopback
        target = str(Address("127.0.0.1" if everywhere else self.address.host, self.address.port))
        if self.tls is None:
            return grpc.aio.insecure_channel(target)
        mutual = self.tls.client_roots is not None
        credentials = grpc.ssl_channel_credentials(
            root_certificates=_read(self.tls.certificate),
            private_key=_read(self.tls.key) if mutual else None,
            certificate_chain=_read(self.tls.certificate) if mutual else None,
        )
        return grpc.aio.secure_channel(target, credentials, options=[("grpc.ssl_target_name_override", self.name)])


def _read(path: Path) -> bytes:
    return path.read_bytes()
