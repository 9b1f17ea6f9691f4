"""Engines are really built, with TensorRT-RTX and without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import psutil
import pytest
from onnx import numpy_helper

from dragoman.bundle.manifest import Dimensions, Graph, Profile, TensorSpec
from dragoman.errors import EngineBuildError
from dragoman.export.progress import Advance, QuietStages
from dragoman.export.tensorrt import BuildOptions, ProfileLimits, apart, build_engines, engines, find_toolchain
from dragoman.export.tensorrt.compilation import Job, compile_engine
from dragoman.export.tensorrt.products import wide_products

pytest.importorskip("tensorrt_rtx_bindings")

WIDTH, VOCABULARY = 16, 20
DIMENSIONS = Dimensions(
    d_model=WIDTH,
    heads=2,
    head_dim=8,
    encoder_layers=1,
    decoder_layers=1,
    source_vocabulary=VOCABULARY,
    target_vocabulary=VOCABULARY,
    max_source_tokens=32,
    max_target_tokens=32,
)
AMPERE = BuildOptions(compute_capabilities=("8.6",), limits=ProfileLimits(max_batch=4, max_beams=2, cache_buckets=(16,)))


def write_encoder(directory: Path, dtype: str = "float", operator: str = "Relu") -> Graph:
    """A graph with an encoder's surface: ids to one key a head, weights in a file beside it."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        encoder (int64[batch,source] source_ids, int32[batch] source_lengths) => ({dtype}[batch,2,source,8] cross_key_0) {{
            embedded = Gather(embedding, source_ids)
            product = MatMul(embedded, weight)
            bent = {operator}(product)
            shape = Constant<value_ints=[0, -1, 2, 8]>()
            split = Reshape(bent, shape)
            cross_key_0 = Transpose<perm=[0, 2, 1, 3]>(split)
        }}""")
    kind = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    random = np.random.default_rng(7)
    for name, rows in (("embedding", VOCABULARY), ("weight", WIDTH)):
        array = random.standard_normal((rows, WIDTH)).astype(kind)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for index, node in enumerate(model.graph.node):
        node.name = f"node_{index}_{node.op_type}"
    onnx.save(
        model,
        directory / "encoder.portable.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return Graph(
        role="encoder",
        lowering="portable",
        file="encoder.portable.onnx",
        opset=18,
        inputs=(TensorSpec("source_ids", "int64", ("batch", "source")), TensorSpec("source_lengths", "int32", ("batch",))),
        outputs=(TensorSpec("cross_key_0", "float32", ("batch", 2, "source", 8)),),
    )


class Interrupted(QuietStages):
    """Somebody presses Ctrl-C as soon as a build reports progress."""

    def _advance(self, _name: str) -> Advance:
        def interrupt(_share: float) -> None:
            raise KeyboardInterrupt

        return interrupt


class Watched(QuietStages):
    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def _advance(self, _name: str) -> Advance:
        return self.shares.append


def built(directory: Path, graph: Graph, options: BuildOptions = AMPERE, stages: QuietStages | None = None) -> Path:
    (engine,) = build_engines(
        directory, [graph], dimensions=DIMENSIONS, precision="fp32", options=options, stages=stages or QuietStages()
    )
    return directory / engine.file


def job(directory: Path, graph: Graph, capability: str = "8.6") -> Job:
    shapes = {"source_ids": (1, 4), "source_lengths": (1,)}
    profile = Profile("all", shapes, shapes, shapes)
    return Job("tensorrt_rtx", directory / graph.file, directory / "encoder.engine", (capability,), (profile,))


def test_an_engine_is_built_and_described(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path)
    (engine,) = build_engines(
        tmp_path, [graph], dimensions=DIMENSIONS, precision="fp32", options=AMPERE, stages=QuietStages()
    )
    assert (tmp_path / engine.file).stat().st_size > 10_000
    assert (engine.role, engine.flavour, engine.compute_capabilities) == ("encoder", "tensorrt_rtx", ("8.6",))
    assert engine.version == find_toolchain(AMPERE).version
    assert engine.profiles[0].maximum["source_ids"] == (4, 32)


def test_a_build_reports_its_progress(tmp_path: Path) -> None:
    stages = Watched()
    built(tmp_path, write_encoder(tmp_path), stages=stages)
    assert len(stages.shares) > 3
    assert stages.shares == sorted(stages.shares)
    assert stages.shares[-1] == 1.0
    assert list(stages.seconds) == ["TensorRT encoder"]


def test_an_fp16_engine_is_built_for_every_gpu_generation(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path, dtype="float16")
    assert wide_products(tmp_path / graph.file) == set()
    (engine,) = build_engines(
        tmp_path, [graph], dimensions=DIMENSIONS, precision="fp16", options=BuildOptions(), stages=QuietStages()
    )
    assert {"7.5", "8.0", "8.6", "8.9", "12.0"} <= set(engine.compute_capabilities)


def test_an_fp32_engine_is_built_for_all_but_turing(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path)
    assert wide_products(tmp_path / graph.file) == {"fp32"}
    (engine,) = build_engines(
        tmp_path, [graph], dimensions=DIMENSIONS, precision="fp32", options=BuildOptions(), stages=QuietStages()
    )
    assert "7.5" not in engine.compute_capabilities
    assert "8.0" in engine.compute_capabilities


def test_a_bfloat16_engine_is_built_for_all_but_turing(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path, dtype="bfloat16")
    assert wide_products(tmp_path / graph.file) == {"bfloat16"}
    (engine,) = build_engines(
        tmp_path, [graph], dimensions=DIMENSIONS, precision="bf16", options=BuildOptions(), stages=QuietStages()
    )
    assert engine.compute_capabilities[0] == "8.0"
    turing = BuildOptions(compute_capabilities=("7.5",))
    with pytest.raises(EngineBuildError, match=r"7\.5 can't multiply matrices in bfloat16"):
        build_engines(tmp_path, [graph], dimensions=DIMENSIONS, precision="bf16", options=turing, stages=QuietStages())


def test_an_unknown_gpu_generation_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(EngineBuildError, match=r"compute capability 3\.5 .*it can: 7\.5"):
        find_toolchain(BuildOptions(compute_capabilities=("3.5",)))


def test_what_does_not_parse_is_named_by_node(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path, operator="MeanVarianceNormalization")
    with pytest.raises(EngineBuildError, match=r"node 'node_2_MeanVarianceNormalization' \(MeanVarianceNormalization\)"):
        built(tmp_path, graph)
    assert not list(tmp_path.glob("*.engine*"))


def test_a_failed_build_has_its_reason(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path)
    with pytest.raises(EngineBuildError, match="FP32 GEMM is not supported"):
        compile_engine(job(tmp_path, graph, capability="7.5"), lambda _share: True)


def test_missing_weights_are_a_build_error(tmp_path: Path) -> None:
    graph = write_encoder(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(EngineBuildError, match="initializer: embedding"):
        built(tmp_path, graph)


def test_a_builder_that_crashes_does_not_take_the_export_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "import os, signal; print('bad address', file=__import__('sys').stderr); os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(engines, "_WORKER", (sys.executable, "-c", crash))
    with pytest.raises(EngineBuildError, match=r"died of SIGSEGV .*encoder\.portable\.onnx"):
        built(tmp_path, write_encoder(tmp_path))


def test_a_build_can_be_interrupted(tmp_path: Path) -> None:
    graph, shares = write_encoder(tmp_path), list[float]()

    def stop_soon(share: float) -> bool:
        shares.append(share)
        return len(shares) < 3

    with pytest.raises(KeyboardInterrupt):
        compile_engine(job(tmp_path, graph), stop_soon)
    assert not list(tmp_path.glob("*.engine*"))
    assert max(shares) < 0.9


def test_ctrl_c_leaves_no_engine_and_no_worker(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        built(tmp_path, write_encoder(tmp_path), stages=Interrupted())
    assert set(psutil.Process().children()) <= before
    assert not list(tmp_path.glob("*.engine*"))


def test_a_worker_that_will_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('{\"share\": 0.1}', flush=True); time.sleep(600)"
    )
    monkeypatch.setattr(engines, "_WORKER", (sys.executable, "-c", stubborn))
    monkeypatch.setattr(apart, "STOP_TIMEOUT_S", 0.2)
    others = set(psutil.Process().children())  # of tests that share this process
    with pytest.raises(KeyboardInterrupt):
        built(tmp_path, write_encoder(tmp_path), stages=Interrupted())
    left = set(psutil.Process().children()) - others
    assert not [child for child in left if child.status() != psutil.STATUS_ZOMBIE]


def test_engines_need_portable_graphs(tmp_path: Path) -> None:
    with pytest.raises(EngineBuildError, match="portable graphs"):
        build_engines(tmp_path, [], dimensions=DIMENSIONS, precision="fp32", options=AMPERE, stages=QuietStages())
