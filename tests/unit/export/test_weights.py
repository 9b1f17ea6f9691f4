from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dragoman.export.weights import INLINE_BYTES, WEIGHTS_NAME, WeightsFile


def model_of(**arrays: np.ndarray) -> ir.Model:
    """A graph that only holds initializers and adds nothing to them."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="test")
    for name, array in arrays.items():
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        graph.register_initializer(value)
    return ir.Model(graph, ir_version=10)


def large(seed: int, size: int = 4096) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def places(model: ir.Model) -> dict[str, tuple[int, int]]:
    return {
        name: (value.const_value.offset, value.const_value.length)
        for name, value in model.graph.initializers.items()
        if isinstance(value.const_value, ir.ExternalTensor)
    }


def test_equal_weights_of_different_graphs_are_stored_once(tmp_path: Path) -> None:
    one, two = model_of(a=large(1), b=large(2)), model_of(other_name=large(1), c=large(3))
    with WeightsFile(tmp_path) as weights:
        weights.take(one)
        weights.take(two)
    assert places(two)["other_name"] == places(one)["a"]
    assert (tmp_path / WEIGHTS_NAME).stat().st_size == 3 * large(1).nbytes


def test_equal_bytes_of_another_shape_share_their_place(tmp_path: Path) -> None:
    model = model_of(flat=large(1), square=large(1).reshape(64, 64))
    with WeightsFile(tmp_path) as weights:
        weights.take(model)
    assert len(set(places(model).values())) == 1


def test_weights_come_back_as_they_were(tmp_path: Path) -> None:
    arrays = {"floats": large(1, 999), "bytes": large(2, 5000).astype(np.int8), "halves": large(3, 700).astype(np.float16)}
    model = model_of(**arrays)
    with WeightsFile(tmp_path) as weights:
        weights.take(model)
    ir.save(model, tmp_path / "graph.onnx")
    read = onnx.load(tmp_path / "graph.onnx")
    for tensor in read.graph.initializer:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), arrays[tensor.name])


def test_a_transposed_view_is_stored_in_its_own_order(tmp_path: Path) -> None:
    view = large(1).reshape(32, 128).T
    model = model_of(view=view)
    with WeightsFile(tmp_path) as weights:
        weights.take(model)
    stored = np.fromfile(tmp_path / WEIGHTS_NAME, np.float32)
    np.testing.assert_array_equal(stored.reshape(128, 32), view)


def test_pages_and_cache_lines_are_respected(tmp_path: Path) -> None:
    model = model_of(small=large(1, 300), odd=large(2, 1111), big=large(3, 5000), last=large(4, 260))
    with WeightsFile(tmp_path) as weights:
        weights.take(model)
    for offset, length in places(model).values():
        assert offset % (4096 if length >= 4096 else 64) == 0


def test_small_tensors_stay_in_the_graph(tmp_path: Path) -> None:
    model = model_of(shape=np.array([1, 2, 3]), weight=large(1, INLINE_BYTES))
    with WeightsFile(tmp_path) as weights:
        weights.take(model)
    assert list(places(model)) == ["weight"]


def test_the_file_is_closed_when_an_export_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with WeightsFile(tmp_path) as weights:
            weights.take(model_of(a=large(1)))
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert (tmp_path / WEIGHTS_NAME).stat().st_size == large(1).nbytes  # flushed: nothing holds it open
