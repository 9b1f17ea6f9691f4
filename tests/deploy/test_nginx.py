"""The balancer's configuration in a real nginx: which servers are skipped, when, and which timeout applies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet  # Python 3.10 has two of them
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from benchmarks.replicas import Balancer, nginx_version
from tritonclient.grpc import service_pb2, service_pb2_grpc

from calm import on_a_calm_machine

pytestmark = pytest.mark.skipif(nginx_version() is None, reason="apt install nginx")

HUNG_S = 4.0
"""grpc_read_timeout of the configuration: how long a caller with a usual deadline is kept by a silent server."""
USUAL_S, LONG_S = 30.05, 31.0
"""Deadlines on both sides of what the configuration takes for a long request; on the wire the first one is 30.1 s."""


class SomeServer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers at once unless it is told to be silent."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.asked = 0
        self._speaks = threading.Event()
        self._speaks.set()
        self._server = grpc.server(ThreadPoolExecutor(8))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def be_silent(self) -> None:
        self._speaks.clear()

    def speak(self) -> None:
        self._speaks.set()

    def stop(self) -> None:
        self.speak()
        self._server.stop(None).wait()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.asked += 1
        self._speaks.wait()
        return service_pb2.ModelInferResponse(id=str(self.number))

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self._speaks.wait()
        return service_pb2.ServerLiveResponse(live=True)


class Client:
    """Asks the balancer, without retries."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self.close = self._channel.close

    def infer(self, deadline_s: float | None = USUAL_S) -> grpc.StatusCode:
        return self._code(self._stub.ModelInfer, service_pb2.ModelInferRequest(model_name="translate"), deadline_s)

    def live(self) -> grpc.StatusCode:
        return self._code(self._stub.ServerLive, service_pb2.ServerLiveRequest(), USUAL_S)

    def _code(self, method: Any, request: Any, deadline_s: float | None) -> grpc.StatusCode:
        try:
            method(request, timeout=deadline_s)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


class Place:
    """Two servers, nginx before them, and a client."""

    def __init__(self, stack: ExitStack) -> None:
        self.servers = [SomeServer(number) for number in range(2)]
        for server in self.servers:
            stack.callback(server.stop)
        balancer = Balancer([server.address for server in self.servers])
        stack.callback(balancer.stop)
        self.client = Client(balancer.address)
        stack.callback(self.client.close)

    def until_refused(self, ask: Any) -> float:
        """How long the call took that met the silent server, as one of two does, and was told that it may be sent again."""
        for _ in self.servers:
            began_at = time.monotonic()
            if (code := ask()) is not grpc.StatusCode.OK:
                assert code is grpc.StatusCode.UNAVAILABLE
                return time.monotonic() - began_at
        pytest.fail("no call met the silent server")


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def test_requests_take_turns(place: Place) -> None:
    assert {place.client.infer() for _ in range(10)} == {grpc.StatusCode.OK}
    assert [server.asked for server in place.servers] == [5, 5]


@on_a_calm_machine
def test_a_silent_server_keeps_a_usual_request_for_seconds_and_is_then_left_out(place: Place) -> None:
    place.servers[0].be_silent()
    took_s = place.until_refused(place.client.infer)
    assert HUNG_S - 0.2 < took_s < HUNG_S + 1.5
    asked = place.servers[0].asked
    assert {place.client.infer() for _ in range(10)} == {grpc.StatusCode.OK}
    assert place.servers[0].asked == asked


@pytest.mark.parametrize("deadline_s", [LONG_S, None])
def test_a_request_that_is_allowed_more_time_outlasts_the_silence(place: Place, deadline_s: float | None) -> None:
    for server in place.servers:
        server.be_silent()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(place.client.infer, deadline_s)
        with pytest.raises(NotYet):
            answer.result(HUNG_S + 1)
        for server in place.servers:
            server.speak()
        assert answer.result(60) is grpc.StatusCode.OK


@on_a_calm_machine
def test_a_request_without_computation_detects_a_silent_server_sooner(place: Place) -> None:
    place.servers[0].be_silent()
    assert place.until_refused(place.client.live) < HUNG_S - 1
    assert {place.client.infer() for _ in range(10)} == {grpc.StatusCode.OK}
    assert place.servers[0].asked == 0


def test_when_all_servers_seem_to_hang_requests_are_still_sent(place: Place) -> None:
    for server in place.servers:
        server.be_silent()
    assert [place.client.live() for _ in place.servers] == [grpc.StatusCode.UNAVAILABLE] * 2
    for server in place.servers:
        server.speak()
    assert {place.client.infer() for _ in range(10)} == {grpc.StatusCode.OK}


def test_a_server_that_is_gone_costs_no_request(place: Place) -> None:
    place.servers[0].stop()
    assert {place.client.infer() for _ in range(10)} == {grpc.StatusCode.OK}
