from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from dragoman.bundle.manifest import Lowering, Precision, TensorSpec
from dragoman.errors import ExportError
from dragoman.export import graphs
from dragoman.export.checkpoint import read_checkpoint
from dragoman.export.graphs import build_graphs, describe
from dragoman.export.lowering import PortableLowering
from exported_graphs import EACH_LOWERING, LOWERINGS, Exported, eager_logits, export, log_softmax, needs_operators
from forced_steps import Workload, random_workload, worst_difference


def loaded(exported: Exported, role: str, lowering: str) -> onnx.ModelProto:
    return onnx.load(exported.directory / f"{role}.{lowering}.onnx", load_external_data=False)


@pytest.fixture(scope="module")
def work() -> Workload:
    return random_workload(53, 53, start=52)


@pytest.fixture(scope="module")
def expected(tiny_fp32: Exported, work: Workload) -> NDArray[np.float32]:
    return eager_logits(tiny_fp32.checkpoint.model, work)


@pytest.mark.parametrize("lowering", EACH_LOWERING)
def test_steps_compute_what_the_torch_module_computes(
    tiny_fp32: Exported, work: Workload, expected: NDArray[np.float32], lowering: Lowering
) -> None:
    for step, best in enumerate(tiny_fp32.stepper(lowering).run(work)):
        logits = expected[:, step]
        assert worst_difference(best, log_softmax(logits), logits) < 1e-5


@needs_operators
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_native_graphs_compute_what_the_torch_module_computes(
    request: pytest.FixtureRequest, work: Workload, expected: NDArray[np.float32], precision: Precision
) -> None:
    exported: Exported = request.getfixturevalue(f"tiny_{precision}")
    allowed = {"fp32": 1e-5, "fp16": 2e-2, "int8": 0.6}[precision]
    for step, best in enumerate(exported.stepper("native").run(work)):
        logits = expected[:, step]
        assert worst_difference(best, log_softmax(logits), logits) < allowed
    products = {"fp32": "FloatLinear", "fp16": "FloatLinear", "int8": "Linear"}[precision]
    used = Counter(node.op_type for node in loaded(exported, "decoder", "native").graph.node)
    assert used[products] == 6  # attention to the past, to the source and the feed-forward layer
    assert used["BestOutputs"] + used["FloatBestOutputs"] == 1
    assert not {"MatMul", "Gemm", "Softmax", "LayerNormalization", "TopK", "Sigmoid", "Reshape", "Transpose"} & set(used)


SHORTLIST = (0, 1, 7, 8, 20, 33, 34, 51)


@pytest.mark.parametrize(
    ("lowering", "precision"),
    [
        ("portable", "fp32"),
        *(pytest.param("native", each, marks=needs_operators) for each in ("fp32", "int8")),
    ],
)
def test_with_a_shortlist_the_best_of_its_tokens_are_returned(
    tiny_checkpoint: Path,
    tmp_path: Path,
    work: Workload,
    expected: NDArray[np.float32],
    lowering: Lowering,
    precision: Precision,
) -> None:
    short = export(tmp_path / "graphs", tiny_checkpoint, (lowering,), precision, shortlist=SHORTLIST)
    assert short.checkpoint.dimensions.shortlist == short.checkpoint.dimensions.choices == len(SHORTLIST)
    allowed = {"fp32": 1e-5, "int8": 0.6}[precision]
    for step, best in enumerate(short.stepper(lowering).run(work)):
        assert set(best.tokens.ravel().tolist()) <= set(SHORTLIST)
        logits = np.full_like(expected[:, step], -np.inf)
        logits[:, SHORTLIST] = expected[:, step][:, SHORTLIST]
        assert worst_difference(best, log_softmax(logits), logits) < allowed
        if precision == "fp32":
            assert (best.tokens[:, 0] == logits.argmax(1)).all()


def test_a_shortlist_leaves_the_model_that_it_was_made_for_alone(tiny_checkpoint: Path) -> None:
    model = read_checkpoint(tiny_checkpoint).model
    short = model.shortened(SHORTLIST)
    assert (model.choices, short.choices) == (53, len(SHORTLIST))
    assert short.target_embedding is model.target_embedding


def test_rows_may_continue_any_past_row_in_the_portable_graph(
    tiny_fp32: Exported, work: Workload, expected: NDArray[np.float32]
) -> None:
    for rows, at, best in tiny_fp32.stepper("portable").run_shuffled(work):
        logits = expected[rows, at]
        assert worst_difference(best, log_softmax(logits), logits) < 1e-5


@pytest.mark.parametrize("lowering", EACH_LOWERING)
@pytest.mark.parametrize(("groups", "width"), [(1, 1), (1, 4), (3, 1)])
def test_graphs_take_any_number_of_groups_and_beams(
    tiny_fp32: Exported, work: Workload, expected: NDArray[np.float32], lowering: Lowering, groups: int, width: int
) -> None:
    rows = groups * width
    targets = work.targets[[0] * width if groups == 1 else [0, 2, 4]]
    part = Workload(work.sources[:groups], work.lengths[:groups], targets, width)
    for step, best in enumerate(tiny_fp32.stepper(lowering).run(part)):
        logits = expected[[0] * rows if groups == 1 else [0, 2, 4], step]
        assert worst_difference(best, log_softmax(logits), logits) < 1e-5


def test_padding_does_not_change_output(tiny_fp32: Exported, work: Workload) -> None:
    step = tiny_fp32.stepper("portable")
    other = work.sources.copy()
    for row, length in enumerate(work.lengths):
        other[row, length:] = 17
    repadded = Workload(other, work.lengths, work.targets, work.width)
    for one, two in zip(step.run(work), step.run(repadded), strict=True):
        np.testing.assert_allclose(one.log_probs, two.log_probs, atol=1e-5)


@needs_operators
@pytest.mark.parametrize("candidates", [1, 2, 53])
def test_the_native_graph_returns_as_many_candidates_as_requested(
    tiny_fp32: Exported, work: Workload, candidates: int
) -> None:
    assert tiny_fp32.graph("decoder", "native").max_candidates is None
    assert tiny_fp32.stepper("native").run(work, candidates)[0].tokens.shape == (work.rows, candidates)


def test_the_portable_graph_fixes_its_candidates_to_64_or_the_whole_vocabulary(tiny_fp32: Exported) -> None:
    assert tiny_fp32.graph("decoder", "portable").max_candidates == 53


def test_the_graphs_are_described_by_their_contract(tiny_fp32: Exported) -> None:
    decoder = tiny_fp32.graph("decoder", "portable")
    cache = ("past_rows", 2, "cache", 8)
    assert decoder.inputs == (
        TensorSpec("tokens", "int64", ("groups", "width")),
        TensorSpec("positions", "int32", ("groups", "width")),
        TensorSpec("source_lengths", "int32", ("groups",)),
        TensorSpec("cross_key_0", "float32", ("groups", 2, "source", 8)),
        TensorSpec("cross_value_0", "float32", ("groups", 2, "source", 8)),
        TensorSpec("self_key_0", "float32", cache),
        TensorSpec("self_value_0", "float32", cache),
        TensorSpec("parents", "int64", ("rows",)),
        TensorSpec("scored_tokens", "int64", ("rows", "scored_tokens")),
    )
    assert [spec.name for spec in decoder.outputs] == [
        "best_tokens",
        "best_log_probs",
        "best_logits",
        "scored_log_probs",
        "scored_logits",
        "present_self_key_0",
        "present_self_value_0",
    ]


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_portable_graphs_use_standard_operators_only(tiny_fp32: Exported, role: str) -> None:
    model = loaded(tiny_fp32, role, "portable")
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == 18


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_no_weight_is_transposed_and_none_is_there_twice(tiny_fp32: Exported, role: str, lowering: str) -> None:
    graph = loaded(tiny_fp32, role, lowering).graph
    weights = {tensor.name for tensor in graph.initializer}
    assert not [node.name for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights]
    places = [
        tuple((entry.key, entry.value) for entry in tensor.external_data)
        for tensor in graph.initializer
        if tensor.external_data
    ]
    assert len(set(places)) == len(places)


def test_embedding_and_projection_are_one_initializer(tiny_fp32: Exported) -> None:
    graph = loaded(tiny_fp32, "decoder", "portable").graph
    gathered = {node.input[0] for node in graph.node if node.op_type == "Gather"}
    assert {node.input[1] for node in graph.node if node.op_type == "Gemm"} <= gathered


def test_linear_layers_are_named_after_their_modules(tiny_fp32: Exported) -> None:
    graph = loaded(tiny_fp32, "decoder", "portable").graph
    multiplied = {node.input[1] for node in graph.node if node.op_type == "MatMul"}
    assert {
        "decoder.layers.0.self_attention.qkv.weight",
        "decoder.layers.0.cross_attention.query.weight",
        "decoder.layers.0.feed_forward.outer.weight",
    } <= multiplied


@pytest.mark.parametrize("lowering", EACH_LOWERING)
def test_the_graphs_of_a_lowering_together_hold_each_weight_once(tiny_fp32: Exported, lowering: Lowering) -> None:
    stored: dict[int, int] = {}  # bytes by where they lie in the file
    for role in ("encoder", "decoder", "forced"):
        for tensor in loaded(tiny_fp32, role, lowering).graph.initializer:
            lies = {entry.key: entry.value for entry in tensor.external_data}
            if lies:
                stored[int(lies["offset"])] = int(lies["length"])
    weights = sum(parameter.nbytes for parameter in tiny_fp32.checkpoint.model.parameters())
    positions = 32 * 16 * 4
    assert 0.8 * weights < sum(stored.values()) < 1.5 * (weights + positions)  # a copy would cost more


def test_a_graph_has_no_traces_of_the_machine_that_exported_it(tiny_fp32: Exported) -> None:
    for path in tiny_fp32.directory.glob("*.onnx"):
        assert str(Path.cwd()).encode() not in path.read_bytes()
        assert b"site-packages" not in path.read_bytes()


def test_portable_int8_without_calibration_is_refused(tiny_fp32: Exported, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="calibrated"):
        build_graphs(tiny_fp32.checkpoint, ("portable",), "int8", tmp_path, lambda _share: None)


def test_the_manifest_locates_large_weights(tiny_fp32: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "LARGE_BYTES", 2048)
    found = {}
    for role in ("encoder", "decoder"):
        graph = tiny_fp32.graph(role, "portable")
        for tensor in describe(tiny_fp32.directory / graph.file, graph.role, PortableLowering()).large_weights:
            lies = np.memmap(tiny_fp32.directory / tensor.file, tensor.dtype, "r", tensor.offset, tensor.shape)
            found[graph.role, tensor.name] = np.array(lies)
    embedding = tiny_fp32.checkpoint.model.state_dict()["source_embedding.weight"].numpy()
    held = [array for (role, _), array in found.items() if array.shape == embedding.shape]
    assert len(held) >= 2
    assert all(np.array_equal(array, embedding) for array in held)
