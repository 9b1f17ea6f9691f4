"""`model_repository/*/config.pbtxt` says what `dragoman.wire` says."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from dragoman.serving.triton.installation import BACKEND
from dragoman.wire import MODELS, Tensor, TritonModel

REPOSITORY = Path(__file__).resolve().parents[2] / "model_repository"
TYPES = {"BYTES": "TYPE_STRING", "FP32": "TYPE_FP32", "INT32": "TYPE_INT32", "BOOL": "TYPE_BOOL"}


def config_of(model: TritonModel) -> model_config_pb2.ModelConfig:
    text = (REPOSITORY / model.name / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def as_config(tensor: Tensor) -> tuple[str, str, tuple[int, ...]]:
    return tensor.name, TYPES[tensor.dtype], tensor.dims


def as_tensor(part: object) -> tuple[str, str, tuple[int, ...]]:
    return part.name, model_config_pb2.DataType.Name(part.data_type), tuple(part.dims)  # type: ignore[attr-defined]


def test_the_repository_holds_exactly_the_models_of_the_contract() -> None:
    assert {path.parent.name for path in REPOSITORY.glob("*/config.pbtxt")} == {model.name for model in MODELS}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
class TestModel:
    def test_has_the_inputs_of_the_contract(self, model: TritonModel) -> None:
        config = config_of(model)
        assert [as_tensor(part) for part in config.input] == [as_config(tensor) for tensor in model.inputs]
        assert [part.optional for part in config.input] == [tensor.optional for tensor in model.inputs]

    def test_has_the_outputs_of_the_contract(self, model: TritonModel) -> None:
        assert [as_tensor(part) for part in config_of(model).output] == [as_config(tensor) for tensor in model.outputs]

    def test_is_decoupled_exactly_when_the_contract_is(self, model: TritonModel) -> None:
        assert config_of(model).model_transaction_policy.decoupled == model.decoupled

    def test_is_named_as_its_folder(self, model: TritonModel) -> None:
        assert config_of(model).name == model.name

    def test_leaves_batching_to_the_engine(self, model: TritonModel) -> None:
        config = config_of(model)
        assert config.max_batch_size == 0
        assert not config.HasField("dynamic_batching")

    def test_no_model_takes_numbers_of_variable_shape(self, model: TritonModel) -> None:
        assert all(tensor.dtype == "BYTES" for tensor in model.inputs)

    def test_is_served_by_the_dragoman_backend(self, model: TritonModel) -> None:
        assert config_of(model).backend == BACKEND

    def test_has_a_version_directory_without_files_of_its_own(self, model: TritonModel) -> None:
        """Triton wants one; git keeps no empty directory."""
        assert [path.name for path in (REPOSITORY / model.name / "1").iterdir()] == [".gitkeep"]
