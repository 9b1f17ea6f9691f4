"""Refusals in every form and by every way in: Triton outlives all of them, in any number."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2

from hostile.deaths import Deaths
from hostile.fuzz import frames, send
from hostile.grammar import Grammar
from hostile.hammer import hammered
from hostile.http_requests import http_fuzzed
from hostile.outcomes import stream
from served import Caller, Server, outputs, request

STRICT = (("triton_grpc_error", "true"),)


@pytest.fixture
def deaths(server: Server) -> Iterator[Deaths]:
    with Deaths(server) as deaths:
        yield deaths
        deaths.whole()
        assert deaths.counted() == Counter()


@pytest.mark.parametrize("metadata", [STRICT, ()], ids=["strict", "plain"])
def test_a_refused_stream_ends_with_an_ordinary_response(
    caller: Caller, deaths: Deaths, metadata: tuple[tuple[str, str], ...]
) -> None:
    message = request("translate_stream", ["Hello."], {"top_k": -1})
    outcomes = [stream(caller.stub, message, metadata=metadata) for _ in range(300)]
    assert Counter(outcome.code for outcome in outcomes) == {"INVALID_REQUEST": 300}


def test_a_refused_stream_has_its_error_even_if_details_were_not_requested(caller: Caller, deaths: Deaths) -> None:
    """A caller that asks for CHUNK alone must not take a refusal for an empty translation."""
    message = request("translate_stream", ["Hello."], {"top_k": -1})
    message.outputs.add(name="CHUNK")
    (response,) = caller.stub.ModelStreamInfer(iter([message]), timeout=600)
    assert "DETAILS" in [output.name for output in response.infer_response.outputs]


@pytest.mark.parametrize(("model", "output"), [("translate", "DETAILS"), ("encoder", "MODEL_INFO")])
def test_a_call_refused_in_a_strict_stream_is_an_ordinary_response(
    caller: Caller, deaths: Deaths, model: str, output: str
) -> None:
    message = request(model, ["Hello."], {"top_k": -1})
    (response,) = caller.stub.ModelStreamInfer(iter([message]), timeout=600, metadata=STRICT)
    assert not response.error_message
    (refusal,) = outputs(response.infer_response)[output]
    assert json.loads(refusal)["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("kind", ["bad-call-in-stream", "cancel-stream"])
def test_triton_outlives_streams_that_end_badly(server: Server, deaths: Deaths, kind: str) -> None:
    assert not hammered(server.grpc, deaths, kind, 600, processes=2).failed


def test_triton_outlives_several_refused_requests_in_one_stream(caller: Caller, deaths: Deaths) -> None:
    message = request("translate_stream", ["Hello."], {"top_k": -1})
    for _ in range(50):
        responses = list(caller.stub.ModelStreamInfer(iter([message] * 5), timeout=600, metadata=STRICT))
        assert [response.error_message for response in responses] == [""] * 5


def test_random_requests_get_an_answer(server: Server, deaths: Deaths) -> None:
    found = send(server.grpc, 1200, seed=random.randrange(10**6))
    assert found.wrong == []


def test_random_http2_frames_disturb_no_request(server: Server, deaths: Deaths) -> None:
    assert not frames(server.grpc, deaths, 200, seed=random.randrange(10**6)).failed


def test_the_same_seed_makes_the_same_requests() -> None:
    """What `make hostile` found can be found again."""
    first, second = Grammar(7), Grammar(7)
    assert [first.request() for _ in range(50)] == [second.request() for _ in range(50)]


def test_random_http_requests_get_an_answer(reference_bundle: Path) -> None:
    from dragoman.serving.supervisor.ports import free_port

    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    with Server.start([f"en-de={reference_bundle}"], "--http-address", address) as server, Deaths(server) as deaths:
        row = http_fuzzed(address, deaths, 300, seed=random.randrange(10**6))
    assert not row.failed, row


ADMINISTRATION = {
    "RepositoryIndex": service_pb2.RepositoryIndexRequest(),
    "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(model_name="translate"),
    "RepositoryModelLoad": service_pb2.RepositoryModelLoadRequest(model_name="translate"),
    "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest(name="x", key="/x", byte_size=1),
    "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest(),
    "CudaSharedMemoryStatus": service_pb2.CudaSharedMemoryStatusRequest(),
    "TraceSetting": service_pb2.TraceSettingRequest(model_name="translate"),
    "LogSettings": service_pb2.LogSettingsRequest(),
}


@pytest.mark.parametrize("method", ADMINISTRATION)
@pytest.mark.parametrize("token", [None, "", "x", "admin", "é" * 100], ids=["none", "empty", "x", "admin", "long"])
def test_administration_is_closed(caller: Caller, deaths: Deaths, method: str, token: str | None) -> None:
    metadata = [] if token is None else [("triton-grpc-protocol-admin-token", token.encode("ascii", "ignore").decode())]
    with pytest.raises(grpc.RpcError) as error:
        getattr(caller.stub, method)(ADMINISTRATION[method], timeout=600, metadata=metadata)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED)
    assert "restricted" in error.value.details()
