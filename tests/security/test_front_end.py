"""What Triton's front end does before the backend sees a request; the embedded one has a library that closes its defects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2

from hostile.http2 import INFER
from served import Caller, Server, outputs, request

STRICT = (("triton_grpc_error", "true"),)
SHORT = {"cache": False, "max_length": 4}
GOOD = {"translate": "TRANSLATION", "translate_stream": "CHUNK"}
REFUSED = {
    "nobody": "unknown model",
    "translate/7": "unknown model",
    "translate/x": "version",
    "translate/-1": "version",
    "decoder": "unexpected inference input",
}
EXPECTED = GOOD | REFUSED


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    before = server.children()
    caller = server.caller()
    yield caller
    assert caller.translate(["It is raining."]).best
    assert server.children() == before
    caller.close()


def message(model: str) -> service_pb2.ModelInferRequest:
    """For a model, and the version behind the slash; the model is its id."""
    name, _, version = model.partition("/")
    asked = request(name, ["Hello."], SHORT)
    asked.id, asked.model_version = model, version
    return asked


@pytest.mark.parametrize("metadata", [(), STRICT], ids=["", "strict"])
@pytest.mark.parametrize("models", [*itertools.combinations(EXPECTED, 3)], ids="-".join)
def test_models_of_every_kind_can_be_called_in_one_stream(
    caller: Caller, models: tuple[str, ...], metadata: tuple[tuple[str, str], ...]
) -> None:
    answered: dict[str, str] = {}
    messages = iter([message(model) for model in models])
    for response in caller.stub.ModelStreamInfer(messages, timeout=600, metadata=metadata):
        tensors = response.infer_response
        answered[tensors.id] = response.error_message or " ".join(outputs(tensors))
    assert answered.keys() == set(models)
    assert all(EXPECTED[model] in answer for model, answer in answered.items()), answered


@pytest.mark.parametrize("model", [*REFUSED, "translate_stream"])
def test_the_front_end_refuses_unary_calls(caller: Caller, model: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        caller.stub.ModelInfer(message(model), timeout=600)
    assert REFUSED.get(model, "decoupled transaction policy") in (error.value.details() or "")


@pytest.mark.parametrize("about", ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"])
def test_a_version_that_is_no_number_is_refused_and_forgotten(caller: Caller, about: str) -> None:
    ask, question = getattr(caller.stub, about), getattr(service_pb2, f"{about}Request")
    for version in ("x", "-7", "9" * 30):
        with pytest.raises(grpc.RpcError) as error:
            ask(question(name="translate", version=version), timeout=600)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert ask(question(name="translate", version="1"), timeout=600) is not None


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_takes_no_memory(server: Server, caller: Caller, algorithm: grpc.Compression) -> None:
    (pid,) = server.children()["triton"]
    before = psutil.Process(pid).memory_info().rss
    with pytest.raises(grpc.RpcError) as error:
        caller.channel.unary_unary(INFER)(bytes(256 << 20), timeout=600, compression=algorithm)
    assert error.value.code() is grpc.StatusCode.INTERNAL
    assert psutil.Process(pid).memory_info().rss < before + (128 << 20)


def test_compressed_requests_are_answered(caller: Caller) -> None:
    asked = request("translate", ["It is raining."], {})
    answer = caller.stub.ModelInfer(asked, timeout=600, compression=grpc.Compression.Gzip)
    assert caller.answer(answer).best == caller.translate(["It is raining."]).best
