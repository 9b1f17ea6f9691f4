"""The engine cache: refused before the long work where it can't be filled, and filled as a server will look for it.

No GPU is needed: what TensorRT would do, the CPU provider does on the same graphs with the same inputs.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from dragoman.bundle.gpu_providers import TENSORRT, Provider, engine_cache_prefix
from dragoman.bundle.integrity import record_file
from dragoman.bundle.manifest import MANIFEST_NAME, SCHEMA_VERSION, Engine, Manifest, Role, read_manifest
from dragoman.errors import EngineBuildError, EngineCacheError, UsageError
from dragoman.export.pipeline import ExportOptions, export_bundle
from dragoman.export.progress import QuietStages
from dragoman.export.tensorrt import EngineLimits, check_engine_cache, engine_cache, fill_engine_cache, filling
from dragoman.export.tensorrt.profiles import profiles_of
from dragoman.serving.runtime import onnxruntime as server_runtime
from dragoman.serving.runtime.providers import providers_for
from dragoman.serving.runtime.settings import RuntimeSettings
from exported_graphs import Exported

ROLES: tuple[Role, ...] = typing.get_args(Role)
without_tensorrt = pytest.mark.skipif(
    TENSORRT in onnxruntime.get_available_providers(), reason="is about an ONNX Runtime without TensorRT"
)


@pytest.fixture
def bundle(tiny_fp16: Exported, tmp_path: Path) -> Path:
    """The tiny model as `--target tensorrt` describes it; its engines themselves are not needed."""
    limits, read = EngineLimits(max_batch=4, max_beams=2, cache_buckets=(8,)), tiny_fp16.checkpoint
    graphs = tuple(graph for graph in tiny_fp16.graphs if graph.lowering == "portable")
    directory = tmp_path / "bundle"
    directory.mkdir()
    for name in ("weights.bin", *(graph.file for graph in graphs)):
        (directory / name).hardlink_to(tiny_fp16.directory / name)
    for name in (*read.tokenizer.files.values(), *(f"{graph.role}.engine" for graph in graphs)):
        (directory / name).write_bytes(b"not read here")
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        dragoman_version="0",
        model=read.card,
        dimensions=read.dimensions,
        tokens=read.tokens,
        generation=read.generation,
        tokenizer=read.tokenizer,
        precision="fp16",
        targets=("tensorrt",),
        graphs=graphs,
        files={path.name: record_file(path) for path in directory.iterdir()},
        engines=tuple(
            Engine(
                role=graph.role,
                file=f"{graph.role}.engine",
                flavour="tensorrt_rtx",
                version="1.7",
                precision="fp16",
                compute_capabilities=("8.6",),
                profiles=profiles_of(graph, read.dimensions, limits),
                build_seconds=1.0,
            )
            for graph in graphs
        ),
    )
    (directory / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    directory = tmp_path / "engines"
    directory.mkdir()
    return directory


class OnTheCpu:
    """Opens and runs the real graphs on the CPU, and leaves an engine file as TensorRT would."""

    def __init__(self, engine: bytes = b"engine") -> None:
        self.asked: list[list[Provider]] = []
        self.shapes: list[dict[str, tuple[int, ...]]] = []
        self._engine = engine

    def __call__(self, graph: Path | bytes, providers: list[Provider]) -> OnTheCpu:
        self._session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        self.asked.append(providers)
        options = providers[0][1]
        name = f"{options['trt_engine_cache_prefix']}_123_0_fp16_sm86.engine"
        (Path(options["trt_engine_cache_path"]) / name).write_bytes(self._engine)
        return self

    def get_providers(self) -> list[str]:
        return [TENSORRT, *self._session.get_providers()]

    def run(self, _names: None, feed: Mapping[str, NDArray[typing.Any]], /) -> object:
        self.shapes.append({name: array.shape for name, array in feed.items()})
        return self._session.run(None, dict(feed))


def test_the_export_asks_for_exactly_what_the_server_asks_for(bundle: Path, cache: Path) -> None:
    opened, manifest = OnTheCpu(), read_manifest(bundle)
    filling.fill(bundle, cache, lambda _share: None, opened)
    server = RuntimeSettings(device="tensorrt", engine_cache=cache)
    assert opened.asked == [providers_for(server, manifest, role) for role in ROLES]
    assert all("trt_profile_opt_shapes" in providers[0][1] for providers in opened.asked)


def test_the_export_leaves_what_rewrites_a_graph_as_the_server_does(bundle: Path) -> None:
    """ONNX Runtime names an engine after the graph that its own optimisations have left."""
    graph = bundle / "encoder.portable.onnx"
    ours = filling.open_session(graph, [("CPUExecutionProvider", {})]).get_session_options()  # type: ignore[attr-defined]
    theirs = server_runtime._options(RuntimeSettings(device="tensorrt"), 1)
    assert ours.graph_optimization_level == theirs.graph_optimization_level
    for options in (ours, theirs):
        with pytest.raises(RuntimeError):  # not set
            options.get_session_config_entry("session.disable_quant_qdq")


def test_both_graphs_are_opened_and_run_at_the_usual_shapes(bundle: Path, cache: Path) -> None:
    opened, shares, manifest = OnTheCpu(), list[float](), read_manifest(bundle)
    filling.fill(bundle, cache, shares.append, opened)
    usual = [next(engine for engine in manifest.engines if engine.role == role).profiles[0].usual for role in ROLES]
    assert opened.shapes == usual
    assert shares == [0.0, 0.5, 1.0]
    assert len(list(cache.glob("*.engine"))) == 2


def test_a_graph_that_left_no_engine_is_not_taken_for_filled(bundle: Path, cache: Path) -> None:
    prefix = engine_cache_prefix(read_manifest(bundle), "encoder")
    with pytest.raises(EngineBuildError, match=rf"encoder\.portable\.onnx but left no engine {prefix}\*"):
        filling.fill(bundle, cache, lambda _share: None, OnTheCpu(engine=b""))


@without_tensorrt
def test_a_provider_that_onnx_runtime_silently_leaves_out_is_noticed(bundle: Path, cache: Path) -> None:
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(EngineBuildError, match=rf"could not start {TENSORRT} for encoder\.portable\.onnx"),
    ):
        filling.fill(bundle, cache, lambda _share: None)


@without_tensorrt
def test_trying_tensorrt_out_notices_that_it_is_not_there() -> None:
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(EngineBuildError, match=f"could not start {TENSORRT}"),
    ):
        filling.try_out()


def test_the_graph_that_tensorrt_is_tried_out_with_is_a_valid_one() -> None:
    class Tried(OnTheCpu):
        def __call__(self, graph: Path | bytes, providers: list[Provider]) -> Tried:
            self._session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
            return self

    tried = Tried()
    filling.try_out(tried)
    assert tried.shapes == [{"x": (1,)}]


@pytest.mark.parametrize("part", ["open", "run"])
def test_what_onnx_runtime_complains_about_is_told_with_the_graph(bundle: Path, cache: Path, part: str) -> None:
    class Complains(OnTheCpu):
        def __call__(self, graph: Path | bytes, providers: list[Provider]) -> OnTheCpu:
            if part == "open":
                raise RuntimeError("EP_FAIL: no memory")
            return super().__call__(graph, providers)

        def run(self, names: None, feed: Mapping[str, NDArray[np.generic]], /) -> object:
            raise RuntimeError("EP_FAIL: no memory")

    with pytest.raises(EngineBuildError, match=r"can't (build|run) encoder\.portable\.onnx .*: EP_FAIL: no memory"):
        filling.fill(bundle, cache, lambda _share: None, Complains())


@without_tensorrt
def test_an_onnx_runtime_without_tensorrt_is_refused_before_anything_is_written(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    pytest.importorskip("tensorrt_rtx_bindings")
    stages, output, cache = QuietStages(), tmp_path / "bundle", tmp_path / "engines"
    options = ExportOptions(tiny_checkpoint, output, targets=("tensorrt",), engine_cache=cache)
    with pytest.raises(EngineBuildError, match=rf"has no {TENSORRT}.*onnxruntime-gpu.*leave --engine-cache out"):
        export_bundle(options, stages)
    assert stages.seconds == {}
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine with an onnxruntime-gpu, and a GPU and a worker of the test's choice."""

    def pretend(gpu: str | None = "8.6", worker: str | None = None) -> None:
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [TENSORRT, "CPUExecutionProvider"])
        monkeypatch.setattr(engine_cache, "present_compute_capability", lambda: gpu)
        if worker is not None:
            monkeypatch.setattr(engine_cache, "_WORKER", (sys.executable, "-c", worker))

    return pretend


def test_a_machine_without_a_gpu_is_refused(pretended: Callable[..., None], tmp_path: Path) -> None:
    pretended(gpu=None)
    with pytest.raises(EngineBuildError, match=r"this machine has none.*export on that machine, or leave"):
        check_engine_cache(tmp_path / "engines")
    assert list(tmp_path.iterdir()) == []


@without_tensorrt
def test_a_tensorrt_that_does_not_start_is_refused_with_what_it_printed(
    pretended: Callable[..., None], tmp_path: Path
) -> None:
    pretended()  # the worker is the real one, and meets the real ONNX Runtime
    with pytest.raises(EngineBuildError, match=rf"could not start {TENSORRT}.*it printed: .*or leave --engine-cache out"):
        check_engine_cache(tmp_path / "engines")
    assert list(tmp_path.iterdir()) == []


def test_a_tensorrt_that_crashes_is_refused_too(pretended: Callable[..., None], tmp_path: Path) -> None:
    pretended(worker="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(EngineBuildError, match="ONNX Runtime died of SIGSEGV"):
        check_engine_cache(tmp_path / "engines")


def test_where_all_is_well_the_directory_is_made(pretended: Callable[..., None], tmp_path: Path) -> None:
    pretended(worker="print('{\"done\": true}')")
    check_engine_cache(tmp_path / "new" / "engines")
    assert list((tmp_path / "new" / "engines").iterdir()) == []


def test_a_directory_that_can_not_be_made_is_refused(pretended: Callable[..., None], tmp_path: Path) -> None:
    pretended(worker="print('{\"done\": true}')")
    (tmp_path / "file").touch()
    with pytest.raises(EngineBuildError, match=r"file/engines can't be written: Not a directory"):
        check_engine_cache(tmp_path / "file" / "engines")


WORKER_ON_THE_CPU = """
import pathlib, onnxruntime

class OnTheCpu(onnxruntime.InferenceSession):
    def __init__(self, graph, options, providers, enable_fallback):
        super().__init__(graph, options, providers=["CPUExecutionProvider"], enable_fallback=enable_fallback)
        asked = providers[0][1]
        name = asked["trt_engine_cache_prefix"] + "_123_0_fp16_sm86.engine"
        pathlib.Path(asked["trt_engine_cache_path"], name).write_bytes(b"engine")
        print("a library that prints")

    def get_providers(self):
        return ["TensorrtExecutionProvider"]

onnxruntime.InferenceSession = OnTheCpu
from dragoman.export.tensorrt.filling_worker import main
raise SystemExit(main())
"""


def test_the_cache_is_filled_in_a_process_of_its_own(pretended: Callable[..., None], bundle: Path, cache: Path) -> None:
    pretended(worker=WORKER_ON_THE_CPU)
    shares: list[float] = []
    fill_engine_cache(bundle, cache, shares.append)
    assert shares == [0.0, 0.5, 1.0, 1.0]
    manifest = read_manifest(bundle)
    left = {path.name for path in cache.iterdir()}
    assert left == {f"{engine_cache_prefix(manifest, role)}_123_0_fp16_sm86.engine" for role in ROLES}


def test_a_crash_while_filling_leaves_a_bundle_that_can_be_served(
    pretended: Callable[..., None], bundle: Path, cache: Path
) -> None:
    pretended(worker="import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    with pytest.raises(EngineCacheError, match=r"is complete and can be served.*died of SIGABRT.*or start a server"):
        fill_engine_cache(bundle, cache, lambda _share: None)


def test_an_engine_cache_needs_the_target_tensorrt(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine-cache only means something with --target tensorrt"):
        ExportOptions(tmp_path, tmp_path / "bundle", targets=("cuda",), engine_cache=tmp_path)
